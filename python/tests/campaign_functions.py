"""Functions of campaigns, which worker processes import."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import tidewire as tw


@dataclass
class Outcome:
    hits: int
    area: float


class Typed(TypedDict):
    hits: int
    name: str | None


class Packed(msgspec.Struct):
    hits: int
    at: datetime.datetime
    path: list[int]


@dataclass
class Steps:
    steps: int
    label: str = "plain"


def pi(run: tw.Run) -> Outcome:
    draw = run.random.random
    hits = sum(draw() ** 2 + draw() ** 2 <= 1 for _ in range(10))
    return Outcome(hits, hits / 2.5)


def slow_pi(run: tw.Run) -> Outcome:
    """About a millisecond, so that a campaign can be met while it runs."""
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass
    return pi(run)


def typed(run: tw.Run) -> Typed:
    return {"hits": run.index, "name": None if run.index % 2 else f"run {run.index}"}


def packed(run: tw.Run) -> Packed:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    return Packed(run.index, at + datetime.timedelta(seconds=run.index), [run.index, 7])


def number(run: tw.Run) -> float:
    return run.random.random()


def plain(run):  # type: ignore[no-untyped-def]
    return {"index": run.index, "flag": run.index > 1, "seed": run.seed % 1000}


def teams(run: tw.Run) -> list[Outcome]:
    return [Outcome(team, run.index + team / 10) for team in range(run.index % 3)]


def stepped(run: tw.Run[Steps]) -> int:
    run.params.steps += 1
    return run.params.steps


def swept(run: tw.Run) -> dict[str, Any]:
    run.params["teams"].append(1)
    return {"set": f"{run.params['strategy']}-{len(run.params['teams'])}"}
