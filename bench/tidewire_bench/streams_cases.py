"""The workloads of streams, and who runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Program = Literal["python", "rust", "failover"]
Place = Literal["folder", "hub", "nats", "redis"]


@dataclass(frozen=True)
class Contender:
    """Contender: a role of a program, and the storage of its messages."""

    name: str
    program: Program
    role: str
    place: Place
    share: float = 1.0
    """Of the messages of a workload: less for one that would take many times as long."""

    @property
    def ours(self) -> bool:
        """True if the contender is Tidewire."""
        return self.role == "tidewire"


@dataclass(frozen=True)
class Case:
    """A workload. ``figures`` are those of its table, the first of which is compared."""

    id: str
    title: str
    workload: str
    contenders: tuple[Contender, ...]
    size: str = ""
    figures: tuple[str, ...] = ("rate",)
    bar: str = ""
    points: Literal["", "events"] = ""


FOLDER = Contender("tidewire folder", "python", "tidewire", "folder")
OURS = (
    FOLDER,
    Contender("tidewire hub", "python", "tidewire", "hub"),
    Contender("tidewire on NATS", "python", "tidewire", "nats", 0.5),
)
REDIS = Contender("redis-py, appendfsync always", "python", "redis", "redis", 0.2)
ON_DISK = (*OURS, Contender("nats-py", "python", "nats-py", "nats", 0.2), REDIS)
FROM_RUST = Contender("tidewire hub, from Rust", "rust", "tidewire", "hub")
LIMITS = (
    Contender("SQLite, WAL, synchronous=FULL", "python", "sqlite", "folder"),
    Contender("bare file, pwrite + fdatasync", "python", "bare", "folder"),
)

CASES = (
    Case("one", "one after another", "one", (*ON_DISK, *LIMITS), "one", bar="as many as a bare file within 1.15x"),
    Case("gathers", "gathers of 100", "gathers", (*ON_DISK, LIMITS[0]), "gathers"),
    # nats-py has no atomic batches.
    Case("batches", "batches of 100, each whole or not at all", "batches", (*OURS, REDIS, LIMITS[0]), "gathers"),
    Case(
        "pipelined",
        "pipelined",
        "pipelined",
        (*ON_DISK, FROM_RUST, *LIMITS),
        "many",
        bar="folder 400 k/s, hub 200 k/s, NATS 100 k/s",
    ),
    Case("consume", "consumed, each with an ack", "consume", (*ON_DISK, FROM_RUST), "many", bar="200 k/s"),
    Case(
        "restart",
        "a folder opened anew, until its first ack, with 100 consumers",
        "restart",
        (FOLDER,),
        figures=("restart_ms", "resident_mb"),
        bar="10 M events: 1 s, 100 MB",
        points="events",
    ),
    Case(
        "failover",
        "single active, from SIGKILL to the next answer",
        "failover",
        (
            Contender("tidewire hub", "failover", "tidewire", "hub"),
            Contender("tidewire on NATS", "failover", "tidewire", "nats"),
        ),
        "failovers",
        figures=("median_s", "p99_s", "max_s"),
        bar="p99: hub 0.3 s, NATS 2 s",
    ),
)

SCALES: dict[str, dict[str, int]] = {
    "short": {"repeat": 1, "one": 500, "gathers": 5_000, "many": 50_000, "failovers": 5},
    "whole": {"repeat": 5, "one": 2_000, "gathers": 50_000, "many": 300_000, "failovers": 30},
}
"""How much of everything a scale runs."""
