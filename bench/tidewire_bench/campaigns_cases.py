"""The workloads of campaigns, and who runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from .model import Case, Curve, Kind, Plan, Run, Scale

Server = Literal["postgres", "rabbitmq"]
WORKERS = (1, 2, 3)
KILLED_WORKERS = 2
KILL_EVERY_S = 0.3
COLD_RUNS, COLD_BAR_S = 100, 1.0
COLD_OF = ("tidewire", "multiprocessing.Pool", "Ray")
"""Those whose driver starts the workers."""
TITLES = {"tiny": "runs of 20.9 us (83 steps)", "ms": "runs of 1.05 ms (4,120 steps)"}
STEP_US = 0.25
# Rates that Tidewire must reach on two cores like those of the workloads page.
BARS = {("tiny", 1): 45_000.0, ("tiny", 2): 88_000.0}


@dataclass(frozen=True)
class Peer:
    """A contender in one form: its program, where its packages and its data are."""

    name: str
    form: str
    kind: Kind
    program: str
    packages: tuple[str, ...] = ()
    servers: tuple[Server, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """As in ``Run``."""
        return self.name, self.form


PEERS = (
    Peer("tidewire", "SQLite", "ours", "with_tidewire.py"),
    Peer("tidewire", "PostgreSQL", "ours", "with_tidewire.py", (), ("postgres",)),
    Peer("multiprocessing.Pool", "chunks of 1,000, COPY", "peer", "with_pool.py", ("psycopg",), ("postgres",)),
    Peer("Celery", "RabbitMQ", "peer", "with_celery.py", ("psycopg", "celery"), ("postgres", "rabbitmq")),
    Peer("Ray", "actors", "peer", "with_ray.py", ("psycopg", "ray"), ("postgres",)),
    Peer("bare loop", "nothing stored", "limit", "with_loop.py"),
)
LENGTHS_OF = ("tidewire", "multiprocessing.Pool")


@dataclass(frozen=True)
class CampaignSizes:
    """How much of everything a scale runs."""

    repeat: int
    tiny: int = 100_000
    ms: int = 2_000
    workers: tuple[int, ...] = WORKERS
    patience_s: float = 20.0
    steps: tuple[int, ...] = (8, 26, 83, 260, 830, 4_120)
    length_s: float = 1.5
    """How long a point of the picture of lengths takes, about."""


SIZES: dict[Scale, CampaignSizes] = {
    "smoke": CampaignSizes(repeat=1, tiny=2_000, ms=60, workers=(2,), patience_s=5.0, steps=(8, 83), length_s=0.05),
    "short": CampaignSizes(repeat=3),
    "full": CampaignSizes(repeat=7, tiny=500_000, ms=10_000, patience_s=90.0, length_s=5.0),
}


def make(scale: Scale, repeat: int | None, only: Sequence[str], peers: Sequence[str]) -> Plan:
    """The plan for a scale, limited to workloads and contenders if any are named.

    Raises:
        ValueError: if a name is unknown.
    """
    sizes, some = SIZES[scale], chosen_peers(peers)
    cases = [case_of(workload, workers, sizes, some) for workload in TITLES for workers in sizes.workers]
    cases += [case for case in (killed_case(sizes, some), cold_case(some)) if case.runs]
    if scale != "smoke":
        # On a machine that is busy with tests a worker may not even begin in that time.
        cases += [case for case in (often_case(sizes, some),) if case.runs]
    curves = [lengths(sizes, some)]
    known = [case.id for case in cases] + [curve.id for curve in curves]
    unknown = set(only) - {part for name in known for part in (name, *name.split("-"))}
    if unknown:
        raise ValueError(f"--only {','.join(sorted(unknown))}: not one of {', '.join(known)}")

    def chosen(name: str) -> bool:
        return not only or bool(set(only) & {name, *name.split("-")})

    return Plan(
        scale=scale,
        repeat=repeat or sizes.repeat,
        cases=tuple(case for case in cases if chosen(case.id)),
        curves=tuple(curve for curve in curves if chosen(curve.id) and curve.points[0][1]),
    )


def chosen_peers(names: Sequence[str]) -> list[Peer]:
    """The contenders with these names; all of them if there are none."""
    known = [name for name, _ in groupby(peer.name for peer in PEERS)]
    unknown = set(names) - set(known)
    if unknown:
        raise ValueError(f"--peers {','.join(sorted(unknown))}: not one of {', '.join(known)}")
    return [peer for peer in PEERS if not names or peer.name in names]


def case_of(workload: str, workers: int, sizes: CampaignSizes, peers: Sequence[Peer]) -> Case:
    """One length of runs with one number of workers."""
    count: int = getattr(sizes, workload)
    runs = (a_run(peer, workers, "--workload", workload, "--count", str(count)) for peer in peers)
    title = f"{TITLES[workload]}, {workers} worker{'s' * (workers > 1)}"
    also = ("cost_us", "peak_mb")
    return Case(
        f"{workload}-{workers}", title, "rate", "runs/s", True, tuple(runs), also, BARS.get((workload, workers))
    )


def killed_case(sizes: CampaignSizes, peers: Sequence[Peer]) -> Case:
    """Rest of a campaign after a kill of one of two workers."""
    runs = (
        a_run(
            peer,
            KILLED_WORKERS,
            *("--workload", "tiny", "--count", str(sizes.tiny)),
            *("--kill", "--patience", str(sizes.patience_s)),
        )
        for peer in peers
        if peer.kind != "limit"
    )
    title = f"SIGKILL for one of {KILLED_WORKERS} workers when 30% is stored"
    return Case("killed", title, "rate", "runs/s", True, tuple(runs), ("lost", "doubled", "seconds"))


def often_case(sizes: CampaignSizes, peers: Sequence[Peer]) -> Case:
    """Ours alone: no peer comes to its end."""
    arguments = ("--workload", "tiny", "--count", str(2 * sizes.tiny), "--kill-every", str(KILL_EVERY_S))
    runs = (a_run(peer, KILLED_WORKERS, *arguments) for peer in peers if peer.kind == "ours")
    title = f"SIGKILL for one of {KILLED_WORKERS} workers every {KILL_EVERY_S * 1e3:.0f} ms"
    return Case("often", title, "rate", "runs/s", True, tuple(runs), ("kills", "lost", "doubled", "seconds"))


def cold_case(peers: Sequence[Peer]) -> Case:
    """A small campaign with the start of everything but the servers."""
    arguments = ("--workload", "tiny", "--count", str(COLD_RUNS), "--cold")
    runs = (a_run(peer, KILLED_WORKERS, *arguments) for peer in peers if peer.name in COLD_OF)
    title = f"{COLD_RUNS} runs cold, with the start of {KILLED_WORKERS} workers"
    return Case("cold", title, "seconds", "s", False, tuple(runs), (), COLD_BAR_S)


def lengths(sizes: CampaignSizes, peers: Sequence[Peer]) -> Curve:
    """Cost of a run beyond the bare loop, over its length."""
    some = [peer for peer in peers if peer.name in LENGTHS_OF]
    points = tuple((steps, tuple(length_run(peer, steps, sizes) for peer in some)) for steps in sizes.steps)
    return Curve(
        "curve-lengths", "What a run costs beyond a bare loop", "steps of a run (0.25 us each)", "us a run", points
    )


def length_run(peer: Peer, steps: int, sizes: CampaignSizes) -> Run:
    """One contender with one length of runs, one worker."""
    count = max(100, int(sizes.length_s * 1e6 / (steps * STEP_US + 2.0)))
    return a_run(peer, 1, "--steps", str(steps), "--count", str(count))


def a_run(peer: Peer, workers: int, *arguments: str) -> Run:
    """A contender with the arguments of its program."""
    return Run(
        f"{peer.name}, {peer.form}" if peer.kind == "ours" else peer.name,
        peer.kind,
        "campaigns",
        peer.form,
        ("--form", peer.form, "--workers", str(workers), *arguments),
        ("peer", "limit") if peer.kind == "ours" else (),
    )
