"""The words of a benchmark plan: runs, cases, curves, sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

Scale = Literal["smoke", "short", "full"]
Kind = Literal["ours", "peer", "channel", "limit"]
Program = Literal[
    "rust",
    "rust-mimalloc",
    "pekko",
    "python-peers",
    "python-ours",
    "agents-ours",
    "agents-peers",
    "pools-ours",
    "pools-peers",
    "rpc",
    "campaigns",
]


@dataclass(frozen=True)
class Run:
    """One contender in one form: a program and its arguments."""

    contender: str
    kind: Kind
    program: Program
    form: str
    arguments: tuple[str, ...]
    beside: tuple[Kind, ...] = ("peer", "channel", "limit")
    """For one of ours: the kinds that have as much to do, and that it is compared with."""

    @property
    def key(self) -> tuple[str, str]:
        """Key of the run within its case."""
        return self.contender, self.form


@dataclass(frozen=True)
class Case:
    """A workload: what is measured, in which unit, and by whom."""

    id: str
    title: str
    figure: str
    unit: str
    higher_is_better: bool
    runs: tuple[Run, ...]
    also: tuple[str, ...] = ()
    """Further figures of the same runs that belong into the table."""
    bar: float | None = None
    """What the figure is required to reach, where something is required."""


@dataclass(frozen=True)
class Curve:
    """A picture: one figure of the same workload over a growing size."""

    id: str
    title: str
    x_title: str
    y_title: str
    points: tuple[tuple[int, tuple[Run, ...]], ...]


@dataclass(frozen=True)
class Plan:
    """Everything that one invocation runs."""

    scale: Scale
    repeat: int
    cases: tuple[Case, ...]
    curves: tuple[Curve, ...]

    @property
    def timeout_s(self) -> float:
        """The longest that one process may take."""
        return 300.0 if self.scale == "full" else 60.0

    def runs(self) -> int:
        """How many processes that is."""
        in_cases = sum(repeats(self, run) for case in self.cases for run in case.runs)
        return in_cases + sum(curve_repeats(self) * len(runs) for curve in self.curves for _, runs in curve.points)


def repeats(plan: Plan, run: Run) -> int:
    """A process of Pekko gives several rounds after a long start: the short scale starts one."""
    return 1 if run.program == "pekko" and plan.scale != "full" else plan.repeat


def curve_repeats(plan: Plan) -> int:
    """A picture needs a middle value only where there is time for it."""
    return plan.repeat if plan.scale == "full" else 1


@dataclass(frozen=True)
class Sizes:
    """How much of everything a scale runs."""

    repeat: int
    storm: int
    exchange: int
    ping: int
    idle_pings: int
    asks: int
    asks_across: int
    actors: int
    timers: int
    fan_out: int
    bursts: int
    python_storm: int
    python_exchange: int
    python_asks: int
    python_actors: int
    all_forms: bool = False
    with_pekko: bool = True
    curve_actors: tuple[int, ...] = (2, 10, 50, 200, 1_000, 10_000)
    curve_idle: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000)
    curve_words: int = 500_000


def rate_case(id: str, title: str, unit: str, *runs: Iterable[Run], also: tuple[str, ...] = ()) -> Case:
    """More is better."""
    return Case(id, title, "rate", unit, True, tuple(flat(*runs)), also)


def latency_case(id: str, title: str, also: tuple[str, ...], figure: str, *runs: Iterable[Run]) -> Case:
    """Less is better."""
    return Case(id, title, figure, "us", False, tuple(flat(*runs)), also)


def alone(runs: Iterable[Run]) -> Iterator[Run]:
    """The same runs as a limit to compare with: ourselves without what a workload adds."""
    for run in runs:
        yield replace(run, contender=f"{run.contender} alone", kind="limit")


def flat(*runs: Iterable[Run]) -> Iterator[Run]:
    """One after the other."""
    for some in runs:
        yield from some
