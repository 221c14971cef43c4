"""Tidewire's pools of workers under tasks that take nothing, 20 us or 1 ms.

python -m tidewire_bench.pool_workloads --contender process-sync-map --workload w1 --count 50000
"""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import tidewire as tw

from tidewire_bench.burning import burn
from tidewire_bench.measure import Figures, Workload, pooled, run

Kind = Literal["thread", "process"]
Collect = Callable[[tw.Pool, list[int]], Coroutine[Any, Any, list[int]]]


def by_sync_map(kind: Kind) -> Workload:
    """A plain thread iterates over ``pool.sync.map``."""

    def workload(options: Namespace) -> Figures:
        with tw.Pool(burn, workers=options.workers, kind=kind) as pool:
            return pooled(pool.sync.map, options)

    return workload


def by_map(kind: Kind) -> Workload:
    """A coroutine iterates over ``pool.map``."""

    async def collect(pool: tw.Pool, tasks: list[int]) -> list[int]:
        return [result async for result in pool.map(tasks)]

    return in_own_loop(kind, collect)


def by_submit(kind: Kind) -> Workload:
    """A coroutine submits every task and gathers the results."""

    async def collect(pool: tw.Pool, tasks: list[int]) -> list[int]:
        return list(await asyncio.gather(*(pool.submit(task) for task in tasks)))

    return in_own_loop(kind, collect)


def in_own_loop(kind: Kind, collect: Collect) -> Workload:
    """Runs a way to collect results in an event loop, one call for each list, so that one function
    times all contenders.
    """

    def workload(options: Namespace) -> Figures:
        loop = asyncio.new_event_loop()
        pool = tw.Pool(burn, workers=options.workers, kind=kind)
        try:
            return pooled(lambda tasks: loop.run_until_complete(collect(pool, tasks)), options)
        finally:
            loop.run_until_complete(pool.stop())
            loop.close()

    return workload


WORKLOADS = ("w1", "w2", "w3", "w4")
CONTENDERS: dict[str, dict[str, Workload]] = {
    "process-sync-map": dict.fromkeys(WORKLOADS, by_sync_map("process")),
    "process-map": dict.fromkeys(WORKLOADS, by_map("process")),
    "process-submit": dict.fromkeys(WORKLOADS, by_submit("process")),
    "thread-sync-map": dict.fromkeys(WORKLOADS, by_sync_map("thread")),
    "thread-map": dict.fromkeys(WORKLOADS, by_map("thread")),
    "thread-submit": dict.fromkeys(WORKLOADS, by_submit("thread")),
}

if __name__ == "__main__":
    sys.exit(run(CONTENDERS))
