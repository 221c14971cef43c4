"""Status and report of a campaign: counters, workers, stages and failures."""

from __future__ import annotations

import datetime
import os
import weakref
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewire._campaigns.campaign import Campaign

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

live: weakref.WeakSet[Campaign] = weakref.WeakSet()
"""The campaigns of this process, for its metrics."""


def time_of(micros: int) -> datetime.datetime:
    """Return a time of a store as a datetime."""
    return _EPOCH + datetime.timedelta(microseconds=micros)


@dataclass(frozen=True)
class Stages:
    """Time of a worker by stage, in seconds of wall clock time."""

    lease: float = 0.0
    """Waiting for a range, and opening the store."""
    warm_up: float = 0.0
    """Start of the process, imports and the first run."""
    run: float = 0.0
    """Running the function."""
    encode: float = 0.0
    """Encoding results as columns."""
    persist: float = 0.0
    """Waiting for a commit. A commit during the next range costs nothing."""
    wait: float = 0.0
    """Waiting for the leases of other workers, or for a paused campaign."""
    idle: float = 0.0
    """Waiting for a campaign to serve."""

    @property
    def total(self) -> float:
        """Sum of all stages."""
        return float(sum(getattr(self, stage.name) for stage in fields(self)))

    def __add__(self, other: Stages) -> Stages:
        return Stages(*(getattr(self, stage.name) + getattr(other, stage.name) for stage in fields(self)))


@dataclass(frozen=True)
class WorkerStatus:
    """A worker of a campaign."""

    id: int
    name: str
    host: str
    process: int
    state: str
    """``working``, ``left`` or ``lost``."""
    joined: datetime.datetime
    seen: datetime.datetime
    """Time of its last lease or commit."""
    runs: int
    """Number of runs that it has stored."""
    stages: Stages
    leased: list[tuple[int, int]]
    """Its leased ranges of runs: first run and count."""


@dataclass(frozen=True)
class PrecisionSample:
    """Precision of the mean of a column at the last check."""

    runs: int
    mean: float
    half_width: float
    set: int
    """The parameter set with the least precise mean."""
    reached: bool


@dataclass(frozen=True)
class Event:
    """An event of a campaign: a change of state, or a note if both states are the same."""

    at: datetime.datetime
    before: str
    after: str
    reason: str


@dataclass(frozen=True)
class FailedRun:
    """A run that failed all its attempts, or was quarantined."""

    run: int
    kind: str
    """``error``, ``timeout`` or ``quarantined``."""
    error: str
    """The class of the error; empty if no error was raised."""
    message: str
    traceback: str
    attempts: int
    worker: int
    at: datetime.datetime


@dataclass(frozen=True)
class Batch:
    """Rows of results, by columns."""

    runs: list[int]
    rows: list[int]
    """Number of each row in its run."""
    columns: dict[str, list[Any]]
    """Values by column: times in UTC, JSON as text, None for missing values."""
    digest: int
    """Sum of the hashes of these rows. The digests of all batches add up to that of the campaign,
    modulo 2^128.
    """


@dataclass(frozen=True)
class Status:
    """Counters, workers and rate of a campaign. The cost of reading it does not depend on the
    number of runs.
    """

    id: int
    name: str
    state: str
    """``draft``, ``running``, ``paused``, ``cancelled``, ``failed`` or ``done``."""
    condition: str
    """The state; for a running campaign ``interrupted`` if the programs that ran it have ended, and
    ``waiting for workers`` if it has none for another reason.
    """
    reason: str
    """Reason of its state."""
    runs: int
    done: int
    failed: int
    quarantined: int
    leased: int
    rows: int
    digest: str
    seconds: float
    """Seconds during which it ran."""
    rate: float
    """Recent number of runs per second."""
    run_us: float
    """Duration of a run in microseconds; 0 if unknown."""
    losses: int
    """Number of workers that died, or whose lease expired."""
    timeline: list[tuple[float, int]]
    """Pairs of running time in seconds and number of ended runs."""
    look: PrecisionSample | None
    workers: list[WorkerStatus]
    now: datetime.datetime
    """Time of this status, on the clock of the store."""

    @property
    def ended(self) -> bool:
        """True if the campaign has ended."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def left(self) -> int:
        """Number of runs that have not ended."""
        return self.runs - self.done - self.failed - self.quarantined

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end; None if unknown, or if no worker runs."""
        return self.left / self.rate if self.rate > 0 and self.condition == "running" else None


@dataclass(frozen=True, repr=False)
class Report(Status):
    """Status and plan of a campaign. ``rate`` is the average of the whole campaign."""

    function: str
    seed: int | str
    created: datetime.datetime
    campaign: Campaign = field(compare=False)

    @property
    def stages(self) -> Stages:
        """Time of all workers by stage."""
        return sum((worker.stages for worker in self.workers), Stages())

    @property
    def limiting(self) -> str:
        """The stage with most of the workers' time, its share, and advice."""
        return limiting(self)

    def page(self, path: str | os.PathLike[str]) -> None:
        """Write an HTML page with charts: the rate over time, the stages of each worker, the
        distribution of each numeric column. For a sweep, distributions have a row for each of the
        first 32 parameter sets, and a table lists the sets.

        The page is one file without scripts, and loads nothing. Of more than a million rows it
        shows evenly spread samples.

        Raises:
            InvalidArgument: if the file can't be written.
        """
        from tidewire._campaigns.page import write

        write(self, path)

    def _repr_html_(self) -> str:
        from tidewire._campaigns.page import fragment

        return fragment(self)

    def __repr__(self) -> str:
        bad = f", {self.failed:,} failed" if self.failed else ""
        bad += f", {self.quarantined:,} quarantined" if self.quarantined else ""
        lines = [
            f"campaign {self.name!r} is {self.condition}: {self.done:,} of {self.runs:,} runs{bad}",
            f"  {self.rate:,.0f} runs/s over {self.seconds:,.2f} s with {len(self.workers)} workers, digest {self.digest}",
            f"  {self.limiting}",
        ]
        return "\n".join(lines)


_ADVICE = {
    "run": "more workers make it faster as long as there are cores for them",
    "lease": "the store is slow to lease ranges: give ranges more time (range=1.0), or use a store that is nearer",
    "warm_up": "most of the time goes into starting workers and importing: plan more runs, or import less",
    "encode": "results cost as much as the runs: return fewer or plainer columns",
    "persist": "the store is slow to commit: put it on a faster disk, return fewer rows, or use PostgreSQL",
    "wait": "workers waited for others or while it was paused: use fewer workers, or shorter runs",
    "idle": "workers waited for a campaign: use fewer workers",
}
_NAMES = {
    "run": "the function",
    "lease": "leasing",
    "warm_up": "warming up",
    "encode": "encoding results",
    "persist": "storing",
    "wait": "waiting",
}


def limiting(report: Report) -> str:
    """Return the limiting stage of a campaign as a sentence."""
    stages = report.stages
    total = stages.total - stages.idle
    if total <= 0:
        return "No worker has stored anything yet."
    shares = {stage.name: getattr(stages, stage.name) / total for stage in fields(stages) if stage.name != "idle"}
    name = max(shares, key=lambda stage: shares[stage])
    return f"The limiting stage is {_NAMES[name]}, with {shares[name]:.0%} of the workers' time: {_ADVICE[name]}."


def status_fields(row: dict[str, Any], condition: str) -> dict[str, Any]:
    """Return the fields of a ``Status`` from the report of the compiled part."""
    return {
        "condition": condition,
        **{name: row[name] for name in ("id", "name", "state", "reason", "runs", "done", "failed", "quarantined")},
        **{name: row[name] for name in ("leased", "rows", "digest", "rate", "run_us", "losses")},
        "seconds": row["active_us"] / 1e6,
        "timeline": [(at / 1e6, runs) for at, runs in row["timeline"]],
        "look": None if row["look"] is None else PrecisionSample(*row["look"]),
        "workers": [_worker(worker) for worker in row["workers"]],
        "now": time_of(row["now_us"]),
    }


def _worker(row: dict[str, Any]) -> WorkerStatus:
    return WorkerStatus(
        id=row["id"],
        name=row["name"],
        host=row["host"],
        process=row["process"],
        state=row["state"],
        joined=time_of(row["joined_us"]),
        seen=time_of(row["seen_us"]),
        runs=row["runs"],
        stages=Stages(*(micros / 1e6 for micros in row["stages_us"])),
        leased=[(first, count) for first, count in row["leased"]],
    )
