"""A race of teams over a bingo board, as discrete events: one run of a campaign, a plain function
of its seed.

Players are there in their weekly sessions. The team's strategy sends the present players to places,
alone or as a party. A party's next event is its next attempt that yields something, whose number is
drawn at once, or the end of a session; events wait in a queue by time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

from facts import UNLOCK_POINTS, WEEK_S, Board, Place, Tile, players
from strategies import STRATEGIES, Strategy

BOARD = Board()
PLAYERS = players()
FINISH_POINTS = 60
WEEKS_MAX = 26
# Attempts that always yield something are made in sets.
SET = 5


@dataclass
class Standing:
    """How a race ended for one team: a row of the results."""

    team: int
    strategy: str
    won: bool
    hours: float
    tiles: int
    points: int
    rows: int
    attempts: int


class Run(Protocol):
    """Part of a campaign run that a race needs."""

    @property
    def random(self) -> Random: ...

    @property
    def params(self) -> Any: ...


def race(run: Run) -> list[Standing]:
    """One race: a team for each strategy. The first with enough points wins."""
    finish = run.params.get("finish", FINISH_POINTS)
    teams = [Team(strategy, finish, run.random.random) for strategy in STRATEGIES]
    hours = [team.play() / 3_600 for team in teams]
    best = min(range(len(teams)), key=lambda team: hours[team])
    return [
        Standing(
            index,
            team.name,
            index == best,
            hours[index],
            sum(team.done),
            team.points,
            len(team.row_points),
            team.attempts,
        )
        for index, team in enumerate(teams)
    ]


class Team:
    """One team's board, its players, and its queue of events."""

    def __init__(self, name: str, finish: int, random: Callable[[], float]) -> None:
        self.name = name
        self.points = 0
        self.attempts = 0
        self.row_points: list[int] = []
        self.done = [False] * len(BOARD.tiles)
        self.missing = [tile.items for tile in BOARD.tiles]
        self._finish = finish
        self._random = random
        self._strategy: Strategy = STRATEGIES[name]
        self._plan: list[Tile] = []
        self._open: list[list[Tile]] = [[] for _ in BOARD.places]
        self._parties: list[Party] = []
        self._online: list[int] = []
        self._until = [0.0] * len(PLAYERS)
        self._queue: list[tuple[float, int, int | Party]] = []
        self._events = 0
        self._unlock()

    def play(self) -> float:
        """Plays to the end; the seconds it took."""
        sessions = [0] * len(PLAYERS)
        for index, player in enumerate(PLAYERS):
            self._push(player.session(0)[0], index)
        now, limit = 0.0, WEEKS_MAX * WEEK_S
        while self.points < self._finish and now < limit:
            now, _, what = heappop(self._queue)
            if isinstance(what, Party):
                if what.disbanded:
                    continue
                if not self._outcome(what):
                    self._next(what, now)
                    continue
            elif what in self._online:
                self._online.remove(what)
                sessions[what] += 1
                self._push(PLAYERS[what].session(sessions[what])[0], what)
            else:
                self._online.append(what)
                self._until[what] = PLAYERS[what].session(sessions[what])[1]
                self._push(self._until[what], what)
            self._send(now)
        return min(now, limit)

    def _outcome(self, party: Party) -> bool:
        """Adds the yield of a party's attempts. True if the party has another task now."""
        self.attempts += party.attempts
        random = self._random
        none, finished = 1.0 - party.chance, False
        for tile in self._open[party.place.index][:]:
            # Some tile came for certain: the first tiles have a larger chance, until one of them
            # has it.
            if random() * (1.0 - none) < tile.chance:
                finished |= self._gain(tile, party.attempts if tile.chance == 1.0 else 1)
                none = 0.0
            elif none:
                none = min(none / (1.0 - tile.chance), 1.0)
        return finished

    def _gain(self, tile: Tile, times: int) -> bool:
        """Items for a tile; whether they were the last."""
        where = self._random() if len(tile.gains) > 1 else 0.0
        gain = next(gain for share, gain in tile.gains if where <= share)
        self.missing[tile.index] -= gain * times
        if self.missing[tile.index] > 0:
            return False
        self.done[tile.index] = True
        self.points += tile.points
        self.row_points[tile.row] += tile.points
        self._open[tile.place.index].remove(tile)
        if tile.row == len(self.row_points) - 1 and self.row_points[tile.row] >= UNLOCK_POINTS:
            self._unlock()
        else:
            self._plan = self._strategy(BOARD, self.done, self.row_points)
        return True

    def _unlock(self) -> None:
        """Opens the next row, if there is one."""
        if len(self.row_points) < len(BOARD.rows):
            for tile in BOARD.rows[len(self.row_points)]:
                self._open[tile.place.index].append(tile)
            self.row_points.append(0)
        self._plan = self._strategy(BOARD, self.done, self.row_points)

    def _send(self, now: float) -> None:
        """Everybody who is there goes where the plan says; parties that stay as they are go on with
        what they do.
        """
        free = tuple(sorted(self._online))
        kept, self._parties = self._parties, []
        for tile in self._plan:
            if not free:
                break
            found, free = gather(tile.place, free)
            for members, pace in found:
                self._parties.append(self._party(kept, tile.place, members, pace, now))
        for party in kept:
            if party not in self._parties:
                self._disband(party, now)

    def _party(self, kept: list[Party], place: Place, members: tuple[int, ...], pace: float, now: float) -> Party:
        """A party as it is already, or a new one that begins now."""
        for party in kept:
            if party.place is place and party.members == members and party.tiles == len(self._open[place.index]):
                return party
        skill = sum(PLAYERS[member].skill for member in members) / len(members)
        until = min(self._until[member] for member in members)
        party = Party(place, members, place.seconds * pace / skill, until, self._open[place.index])
        self._next(party, now)
        return party

    def _next(self, party: Party, now: float) -> None:
        """Draws which of its next attempts yields something; nothing happens if somebody leaves
        before.
        """
        party.began = now
        party.attempts = SET if party.log_none == 0.0 else int(math.log(1.0 - self._random()) / party.log_none) + 1
        end = now + party.attempts * party.seconds
        if end <= party.until:
            self._push(end, party)

    def _disband(self, party: Party, now: float) -> None:
        """Somebody left, or was sent elsewhere. The attempts until now have brought nothing."""
        party.disbanded = True
        self.attempts += int((now - party.began) / party.seconds)

    def _push(self, when: float, what: int | Party) -> None:
        self._events += 1
        heappush(self._queue, (when, self._events, what))


class Party:
    """Players who make attempts together at one place."""

    __slots__ = (
        "attempts",
        "began",
        "chance",
        "disbanded",
        "log_none",
        "members",
        "place",
        "seconds",
        "tiles",
        "until",
    )

    def __init__(self, place: Place, members: tuple[int, ...], seconds: float, until: float, tiles: list[Tile]) -> None:
        none = 1.0
        for tile in tiles:
            none *= 1.0 - tile.chance
        self.place = place
        self.members = members
        self.seconds = seconds
        self.until = until
        self.tiles = len(tiles)
        self.chance = 1.0 - none
        self.log_none = math.log(none) if none > 0.0 else 0.0
        self.began = 0.0
        self.attempts = 0
        self.disbanded = False


@cache
def gather(place: Place, free: tuple[int, ...]) -> tuple[tuple[tuple[tuple[int, ...], float], ...], tuple[int, ...]]:
    """The parties that those who are free form at a place, as large as makes best use of their
    time, and who stays free.
    """
    able = [player for player in free if not place.needs or place.needs in PLAYERS[player].can]
    found: list[tuple[tuple[int, ...], float]] = []
    while fitting := [band for band in place.bands if band.least <= len(able)]:
        band = min(fitting, key=lambda band: band.pace * band.least)
        found.append((tuple(able[: band.least]), band.pace))
        able = able[band.least :]
    going = [member for members, _ in found for member in members]
    return tuple(found), tuple(player for player in free if player not in going)
