"""The facts of a race, from the tables beside this file: the board, what its activities ask for,
and who plays.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
POINTS = {"easy": 1, "medium": 2, "hard": 3, "elite": 4}
UNLOCK_POINTS = 5
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HOUR_S, DAY_S, WEEK_S = 3_600.0, 86_400.0, 604_800.0
NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class Band:
    """How many players may go together, and how long an attempt takes them beside the board's
    time.
    """

    least: int
    most: int
    pace: float


@dataclass(frozen=True, eq=False)
class Tile:
    """One goal of the board. An attempt yields something with a small chance, and then one of a few
    quantities.
    """

    index: int
    row: int
    points: int
    items: int
    place: Place
    chance: float
    gains: tuple[
        tuple[float, int], ...
    ]  # the quantities of an attempt that yields something, by rising probability in sum
    hours: float  # of one player of skill 1, on average

    @property
    def value(self) -> float:
        """Points for an hour of work."""
        return self.points / self.hours


@dataclass(frozen=True, eq=False)
class Place:
    """Where attempts are made: an activity, with attempts of one length. An attempt counts for all
    open tiles of its place.
    """

    index: int
    activity: str
    seconds: float
    needs: str
    bands: tuple[Band, ...]


@dataclass(frozen=True)
class Player:
    """Somebody who plays at the same hours each week."""

    name: str
    skill: float
    can: frozenset[str]
    sessions: tuple[tuple[float, float], ...]  # seconds since the beginning of the week

    def session(self, count: int) -> tuple[float, float]:
        """When the session with this number begins and ends."""
        week, which = divmod(count, len(self.sessions))
        begin, end = self.sessions[which]
        return begin + week * WEEK_S, end + week * WEEK_S


class Board:
    """Rows of tiles, and for each row the combinations of tiles that unlock the next, by what they
    take.
    """

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.rows: list[list[Tile]] = []
        asked = {line["activity"]: line for line in _table("activities.csv")}
        places: dict[tuple[str, str], Place] = {}
        for index, line in enumerate(_table("board.csv")):
            key = line["activity"], line["seconds"]
            if key not in places:
                places[key] = _place(len(places), line, asked.get(line["activity"]))
            row = int(line["row"])
            if row > len(self.rows):
                self.rows.append([])
            self.rows[-1].append(_tile(index, row - 1, line, places[key]))
        self.places = list(places.values())
        self.tiles = [tile for row in self.rows for tile in row]
        self.combinations = [_combinations(row) for row in self.rows]


def players() -> list[Player]:
    """Everybody of a team. All teams are alike, so that nothing but the strategy differs."""
    return [
        Player(line["player"], float(line["skill"]), frozenset(line["can"].split()), tuple(_sessions(line["plays"])))
        for line in _table("players.csv")
    ]


def _place(index: int, line: dict[str, str], asked: dict[str, str] | None) -> Place:
    bands: tuple[Band, ...] = (Band(1, 1, 1.0),)
    if asked is not None:
        bands = tuple(
            Band(int(least), int(most or least), float(pace))
            for least, most, pace in re.findall(r"(\d+)(?:-(\d+))?: ([\d.]+)", asked["parties"])
        )
    return Place(index, line["activity"], float(line["seconds"]), asked["needs"] if asked else "", bands)


def _tile(index: int, row: int, line: dict[str, str], place: Place) -> Tile:
    yields = {0: 1.0}
    for rolls, chance, quantity in re.findall(r"(\d+) x ([\d.]+) of (\d+)", line["drops"]):
        for _ in range(int(rolls)):
            yields = _rolled(yields, float(chance), int(quantity))
    chance = 1.0 - yields.pop(0, 0.0)
    expected = sum(gain * share for gain, share in yields.items())
    gains, total = [], 0.0
    for gain, share in sorted(yields.items(), key=lambda one: -one[1]):
        total += share / chance
        gains.append((total, gain))
    gains[-1] = (1.0, gains[-1][1])
    items = int(line["items"])
    attempts = max(items / expected, 1.0)
    return Tile(
        index, row, POINTS[line["level"]], items, place, chance, tuple(gains), attempts * place.seconds / HOUR_S
    )


def _rolled(yields: dict[int, float], chance: float, quantity: int) -> dict[int, float]:
    """Distribution of an attempt's yield after one more roll."""
    rolled: dict[int, float] = {}
    for gain, share in yields.items():
        for more, with_chance in ((0, 1.0 - chance), (quantity, chance)):
            if share * with_chance > NEGLIGIBLE:
                rolled[gain + more] = rolled.get(gain + more, 0.0) + share * with_chance
    return rolled


def _combinations(row: list[Tile]) -> list[tuple[Tile, ...]]:
    """The sets of tiles of a row that unlock the next one with none to spare, those with the least
    work first.
    """
    enough = [
        tiles
        for size in range(1, len(row) + 1)
        for tiles in combinations(row, size)
        if 0 <= sum(tile.points for tile in tiles) - UNLOCK_POINTS < min(tile.points for tile in tiles)
    ]
    return sorted(enough, key=lambda tiles: math.fsum(tile.hours for tile in tiles))


def _sessions(text: str) -> Iterator[tuple[float, float]]:
    for day, begin, end in re.findall(r"(\w+) (\d+)-(\d+)", text):
        start = DAYS.index(day) * DAY_S
        yield start + int(begin) * HOUR_S, start + int(end) * HOUR_S


def _table(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
