"""The workloads of agents and pools, and who runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .agents_runs import (
    POOL_WORKERS,
    our_pool,
    ours,
    peer,
    pool_limit,
    pool_peer,
    with_deadline,
)
from .burning import steps_per_us
from .model import Case, Plan, Run, Scale

BROADCAST_AGENTS = 50
BURST_AGENTS = 10
IN_FLIGHT = 50
SCALED_WORKERS = (1, 2, 3)
SCALED_TASKS = {"W3": 20, "W4": 1_000}
"""Processor time of one task, in microseconds, of the workloads that are run with several numbers
of workers.
"""

ONE_WAY_BAR, REQUEST_P50_BAR_US, REQUESTS_BAR, TASKS_BAR = 1e6, 25.0, 150e3, 100e3


@dataclass(frozen=True)
class Sizes:
    """How much of everything a scale runs."""

    repeat: int
    messages: int
    requests: int
    requests_at_once: int
    broadcasts: int
    burst: int
    tasks: int
    scaled_work_ms: int
    all_forms: bool = False

    def scaled(self, task_us: int) -> int:
        """As many tasks as take this scale's time of one processor."""
        return max(4, self.scaled_work_ms * 1_000 // task_us)


SIZES: dict[Scale, Sizes] = {
    "smoke": Sizes(
        repeat=1,
        messages=2_000,
        requests=200,
        requests_at_once=500,
        broadcasts=10,
        burst=500,
        tasks=1_000,
        scaled_work_ms=10,
    ),
    "short": Sizes(
        repeat=3,
        messages=100_000,
        requests=2_000,
        requests_at_once=20_000,
        broadcasts=500,
        burst=5_000,
        tasks=20_000,
        scaled_work_ms=150,
    ),
    "full": Sizes(
        repeat=7,
        messages=1_000_000,
        requests=50_000,
        requests_at_once=500_000,
        broadcasts=5_000,
        burst=100_000,
        tasks=500_000,
        scaled_work_ms=3_000,
        all_forms=True,
    ),
}


def make(scale: Scale, repeat: int | None, only: Sequence[str]) -> Plan:
    """The plan for a scale, limited to the ids in ``only`` if there are any.

    Raises:
        ValueError: if ``only`` names no workload.
    """
    sizes = SIZES[scale]
    cases = [*agent_cases(sizes), *pool_cases(sizes), *scaling_cases(sizes)]
    known = [case.id for case in cases]
    wanted = {name.upper() for name in only}
    unknown = wanted - set(known) - {name.split("-")[0] for name in known}
    if unknown:
        raise ValueError(f"--only {','.join(sorted(unknown))}: not one of {', '.join(known)}")
    chosen = tuple(case for case in cases if not wanted or {case.id, case.id.split("-")[0]} & wanted)
    return Plan(scale=scale, repeat=repeat or sizes.repeat, cases=chosen, curves=())


def agent_cases(sizes: Sizes) -> Iterator[Case]:
    """G1 to G5: what an agent broker is used for."""
    yield Case(
        "G1",
        "agents: one way",
        "rate",
        "msg/s",
        True,
        (
            *ours("g1", sizes.messages, "coroutines", "functions", "threads"),
            peer("g1", sizes.messages),
        ),
        bar=ONE_WAY_BAR,
    )
    yield Case(
        "G2",
        "agents: request and reply, one after another",
        "p50_us",
        "us",
        False,
        (
            *ours("g2", sizes.requests, "coroutines", "functions", "handlers"),
            peer("g2", sizes.requests),
            with_deadline("g2", sizes.requests),
        ),
        also=("p99_us", "requests_rate"),
        bar=REQUEST_P50_BAR_US,
    )
    more = ("--in-flight", str(IN_FLIGHT))
    yield Case(
        "G3",
        f"agents: request and reply, {IN_FLIGHT} in flight",
        "rate",
        "requests/s",
        True,
        (
            *ours("g3", sizes.requests_at_once, "coroutines", "functions", more=more),
            peer("g3", sizes.requests_at_once, more=more),
            with_deadline("g3", sizes.requests_at_once, more=more),
        ),
        also=("p50_us", "p99_us"),
        bar=REQUESTS_BAR,
    )
    yield from one_to_many_cases(sizes)


def one_to_many_cases(sizes: Sizes) -> Iterator[Case]:
    """G4 and G5: broadcasts, and bursts of mixed priorities."""
    more = ("--actors", str(BROADCAST_AGENTS))
    yield Case(
        "G4",
        f"agents: broadcast to {BROADCAST_AGENTS}",
        "rate",
        "deliveries/s",
        True,
        (
            *ours("g4", sizes.broadcasts, "coroutines", "functions", more=more),
            peer("g4", sizes.broadcasts, more=more),
        ),
    )
    more = ("--actors", str(BURST_AGENTS))
    yield Case(
        "G5",
        f"agents: a burst of mixed priorities over {BURST_AGENTS}, a pool of 4 threads behind",
        "rate",
        "msg/s",
        True,
        (
            *ours("g5", sizes.burst, "coroutines", "functions", more=more),
            peer("g5", sizes.burst, more=more),
        ),
        also=("urgent_p50_us", "low_p50_us"),
    )


def pool_cases(sizes: Sizes) -> Iterator[Case]:
    """W1 and W2: tasks that take nothing, so that the pool is all there is."""
    tasks = ("w1", sizes.tasks)
    yield Case(
        "W1",
        f"pool of {POOL_WORKERS} processes, tasks that do nothing",
        "rate",
        "tasks/s",
        True,
        (
            our_pool("process-sync-map", "sync.map", *tasks),
            our_pool("process-map", "map", *tasks),
            our_pool("process-submit", "submit, gathered", *tasks),
            pool_peer("multiprocessing.Pool.map", "large chunks", "multiprocessing-map", *tasks),
            pool_peer("multiprocessing.Pool.imap", "one by one", "multiprocessing-imap", "w1", sizes.tasks // 4),
            pool_peer("ProcessPoolExecutor, chunks", "large chunks", "executor-chunks", *tasks),
            pool_peer("ProcessPoolExecutor", "one by one", "executor-map", "w1", sizes.tasks // 10),
        ),
        bar=TASKS_BAR,
    )
    tasks = ("w2", sizes.tasks // 4)
    yield Case(
        "W2",
        f"pool of {POOL_WORKERS} threads, tasks that do nothing",
        "rate",
        "tasks/s",
        True,
        (
            our_pool("thread-sync-map", "sync.map", *tasks),
            our_pool("thread-map", "map", *tasks),
            our_pool("thread-submit", "submit, gathered", *tasks),
            pool_peer("ThreadPool.map", "large chunks", "thread-map", *tasks),
            pool_peer("ThreadPool.imap", "one by one", "thread-imap", *tasks),
            pool_peer("ThreadPoolExecutor", "one by one", "thread-executor", *tasks),
            pool_peer("run_in_executor", "awaited, gathered", "run-in-executor", *tasks),
        ),
    )


def scaling_cases(sizes: Sizes) -> Iterator[Case]:
    """W3 and W4: tasks that take processor time, with 1, 2 and 3 workers."""
    for name, task_us in SCALED_TASKS.items():
        for workers in SCALED_WORKERS:
            runs = tuple(scaling_runs(name.lower(), sizes, task_us, workers))
            title = f"pool of {workers} processes, tasks of {task_us:,} us"
            yield Case(f"{name}-{workers}", title, "rate", "tasks/s", True, runs)


def scaling_runs(workload: str, sizes: Sizes, task_us: int, workers: int) -> Iterator[Run]:
    """Ours and the pools of the standard library; one by one only where there is time for it."""
    tasks, more = (workload, sizes.scaled(task_us)), ("--task-steps", str(round(task_us * steps_per_us())))
    yield our_pool("process-sync-map", "sync.map", *tasks, workers=workers, more=more)
    mp, executor = "multiprocessing.Pool", "ProcessPoolExecutor"
    yield pool_peer(mp, "map, large chunks", "multiprocessing-map", *tasks, workers=workers, more=more)
    yield pool_peer(executor, "map, large chunks", "executor-chunks", *tasks, workers=workers, more=more)
    if sizes.all_forms:
        yield pool_peer(mp, "imap, one by one", "multiprocessing-imap", *tasks, workers=workers, more=more)
        yield pool_peer(executor, "map, one by one", "executor-map", *tasks, workers=workers, more=more)
    if workers == 1:
        yield pool_limit(*tasks, more=more)
