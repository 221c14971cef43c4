"""The bingo race: the simulation of one run, with random numbers of the standard library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "examples/bingo"
sys.path.insert(0, str(FOLDER))

import facts
import race
import strategies

ALL_POINTS = 140


def run(seed: int, finish: int = race.FINISH_POINTS) -> Any:
    return SimpleNamespace(random=Random(seed), params={"finish": finish}, index=seed)


def standings(seeds: range, finish: int = race.FINISH_POINTS) -> list[race.Standing]:
    return [standing for seed in seeds for standing in race.race(run(seed, finish))]


def test_the_board_has_all_its_facts() -> None:
    board = race.BOARD
    assert [len(row) for row in board.rows] == [4] * 14
    assert sum(tile.points for tile in board.tiles) == ALL_POINTS
    coconut = board.rows[0][3]
    # 3 rolls at 0.037 of 20 and one at 0.237 of 40: 280 take 24 attempts of half an hour.
    assert coconut.hours == pytest.approx(280 / (3 * 0.037 * 20 + 0.2372142 * 40) * 0.5)
    assert coconut.chance == pytest.approx(1 - 0.963**3 * (1 - 0.2372142))
    assert coconut.gains[-1][0] == 1.0
    shared = [tile for tile in board.tiles if tile.place is board.rows[1][2].place]
    assert [(tile.row, tile.points) for tile in shared] == [(1, 3), (2, 4), (8, 4)], "an attempt counts for all of them"


def test_a_race_depends_on_its_seed_alone() -> None:
    first = [race.race(run(seed)) for seed in range(20)]
    assert [race.race(run(seed)) for seed in reversed(range(20))] == first[::-1]
    assert len({standing.hours for standings in first for standing in standings}) > 50


def test_a_race_is_the_same_in_another_process() -> None:
    told = "import sys; sys.path.insert(0, sys.argv[1]); import race; from random import Random; from types import SimpleNamespace as N"
    code = f"{told}; print(race.race(N(random=Random(7), params={{}})))"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, str(FOLDER)],
            env={"PYTHONHASHSEED": hashing},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashing in ("1", "2")
    }
    assert answers == {f"{race.race(run(7))}\n"}


def test_one_team_wins_each_race_and_it_is_the_first_that_is_through() -> None:
    for seed in range(20):
        standings = race.race(run(seed))
        assert [standing.strategy for standing in standings] == list(strategies.STRATEGIES)
        assert [standing.won for standing in standings].count(True) == 1
        assert min(standings, key=lambda standing: standing.hours).won
        for standing in standings:
            assert race.FINISH_POINTS <= standing.points < race.FINISH_POINTS + 4
            assert 5 * (standing.rows - 1) <= standing.points, "a row unlocks at five points of the one before"


def test_a_whole_board_can_be_done() -> None:
    assert {(one.points, one.tiles, one.rows) for one in standings(range(3), ALL_POINTS)} == {(ALL_POINTS, 56, 14)}


def test_nobody_plays_out_of_their_sessions() -> None:
    """Every event is in a session of those whom it concerns."""
    team = race.Team("combo", ALL_POINTS, Random(3).random)
    seen = 0

    def outcome(party: race.Party) -> bool:
        nonlocal seen
        seen += 1
        end = party.began + party.attempts * party.seconds
        for member in party.members:
            player = race.PLAYERS[member]
            assert not party.place.needs or party.place.needs in player.can
            assert any(
                begin <= party.began and end <= finish
                for begin, finish in map(player.session, range(52 * len(player.sessions)))
            )
        sizes = [range(band.least, band.most + 1) for band in party.place.bands]
        assert any(len(party.members) in size for size in sizes)
        return whole(party)

    whole = team._outcome
    team._outcome = outcome  # type: ignore[method-assign]
    team.play()
    assert seen > 200


def test_attempts_take_as_many_as_their_chance_says() -> None:
    """The first tile of all: one drop in 650 attempts, which are drawn at once and must have the
    same mean.
    """
    tile = race.BOARD.rows[0][0]
    place = race.Party(tile.place, (0,), 23.0, 1e12, [tile])
    team = race.Team("greedy", 10, Random(5).random)
    needed = []
    for _ in range(4_000):
        team._next(place, 0.0)
        needed.append(place.attempts)
    assert sum(needed) / len(needed) == pytest.approx(1 / 0.001538462, rel=0.05)


def test_a_row_is_unlocked_by_the_combination_with_the_least_work() -> None:
    board = race.BOARD
    done, row_points = [False] * 56, [0]
    plan = strategies.combo(board, done, row_points)
    best = min(board.combinations[0], key=lambda tiles: sum(tile.hours for tile in tiles))
    assert set(plan[: len(best)]) == set(best)
    assert all(sum(tile.points for tile in tiles) >= facts.UNLOCK_POINTS for tiles in board.combinations[0])
    greedy = strategies.greedy(board, done, [5, 5, 0])
    assert [tile.value for tile in greedy] == sorted((tile.value for tile in greedy), reverse=True)
    assert {tile.row for tile in strategies.rows(board, done, [5, 5, 0])[:4]} == {2}


def test_a_killed_worker_changes_nothing_of_a_campaign_and_the_page_has_pictures(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "main.py"), "--races", "120", "--out", str(tmp_path / "bingo.html")],
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "killed worker process" in ran.stdout and "the same digest" in ran.stdout
    page = (tmp_path / "bingo.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2 and all(name in page for name in strategies.STRATEGIES)
    assert "http" not in page and "<script" not in page
    assert "distribution of hours" in (tmp_path / "bingo-report.html").read_text(encoding="utf-8")


def test_sequential_stopping_says_how_many_runs_it_saved() -> None:
    main = FOLDER.parent / "precision/main.py"
    ran = subprocess.run(
        [sys.executable, str(main), "--half-width", "1"], capture_output=True, text=True, check=False, timeout=55
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("were saved") == 2 and "same digest" in ran.stdout
