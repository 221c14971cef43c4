"""Runners of the workloads of agents and pools: each function gives runs of one sort of
contender.
"""

from __future__ import annotations

from .model import Kind, Program, Run

POOL_WORKERS = 2

FORMS = {
    "coroutines": "all on the event loop",
    "functions": "loop to threads",
    "threads": "thread to threads",
    "handlers": "handler asks, on threads",
}


def ours(workload: str, count: int, *forms: str, more: tuple[str, ...] = ()) -> list[Run]:
    """Tidewire's agents in some forms."""
    return [one("tidewire", "ours", "agents-ours", FORMS[form], form, workload, count, more) for form in forms]


def peer(workload: str, count: int, more: tuple[str, ...] = ()) -> Run:
    """asyncio alone: a task and a queue for each agent."""
    return one("asyncio", "peer", "agents-peers", "queues, futures", "asyncio", workload, count, more)


def with_deadline(workload: str, count: int, more: tuple[str, ...] = ()) -> Run:
    """asyncio where each request has a deadline, as ours have."""
    name, form = "asyncio-deadline", "and a timer each"
    return one("asyncio, deadlines", "peer", "agents-peers", form, name, workload, count, more)


def our_pool(
    name: str, form: str, workload: str, count: int, workers: int = POOL_WORKERS, more: tuple[str, ...] = ()
) -> Run:
    """A pool of ours."""
    return one("tidewire", "ours", "pools-ours", form, name, workload, count, (*more, "--workers", str(workers)))


def pool_peer(
    contender: str,
    form: str,
    name: str,
    workload: str,
    count: int,
    workers: int = POOL_WORKERS,
    more: tuple[str, ...] = (),
) -> Run:
    """A pool of the standard library."""
    return one(contender, "peer", "pools-peers", form, name, workload, count, (*more, "--workers", str(workers)))


def pool_limit(workload: str, count: int, more: tuple[str, ...] = ()) -> Run:
    """The same tasks without a pool."""
    return one("no pool", "limit", "pools-peers", "a loop", "plain-loop", workload, count, more)


def one(
    contender: str, kind: Kind, program: Program, form: str, name: str, workload: str, count: int, more: tuple[str, ...]
) -> Run:
    """One contender in one form under one workload."""
    return Run(
        contender, kind, program, form, ("--contender", name, "--workload", workload, "--count", str(count), *more)
    )
