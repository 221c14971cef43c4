"""Pools of the standard library under the workloads of pools: no Tidewire is loaded here.

python pool_peers.py --contender multiprocessing-map --workload w1 --count 50000
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from multiprocessing.pool import Pool, ThreadPool
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tidewire_bench"))

from burning import burn
from measure import Figures, Workload, pooled, run

CHUNKS_PER_WORKER = 4
"""What ``multiprocessing.Pool.map`` divides by where nothing is said."""


def by_map(make: Callable[[int], Pool]) -> Workload:
    """``Pool.map``, which sends chunks of a size that it chooses."""

    def workload(options: Namespace) -> Figures:
        with make(options.workers) as pool:
            return pooled(lambda tasks: pool.map(burn, tasks), options)

    return workload


def by_imap(make: Callable[[int], Pool]) -> Workload:
    """``Pool.imap``: results as they come, one task at a time."""

    def workload(options: Namespace) -> Figures:
        with make(options.workers) as pool:
            return pooled(lambda tasks: pool.imap(burn, tasks), options)

    return workload


def by_executor(make: Callable[[int], Executor], chunked: bool) -> Workload:
    """``Executor.map``, one task at a time as it comes, or with chunks as large as those of
    ``Pool.map``.
    """

    def workload(options: Namespace) -> Figures:
        def run_all(tasks: list[int]) -> Iterable[int]:
            size = len(tasks) // (CHUNKS_PER_WORKER * options.workers) if chunked else 1
            return executor.map(burn, tasks, chunksize=max(1, size))

        with make(options.workers) as executor:
            return pooled(run_all, options)

    return workload


def by_run_in_executor(options: Namespace) -> Figures:
    """``loop.run_in_executor`` from a coroutine, all tasks gathered: what is awaited without a pool
    of ours.
    """
    with ThreadPoolExecutor(options.workers) as executor, closing(asyncio.new_event_loop()) as loop:

        async def run_all(tasks: list[int]) -> list[int]:
            return await asyncio.gather(*(loop.run_in_executor(executor, burn, task) for task in tasks))

        return pooled(lambda tasks: loop.run_until_complete(run_all(tasks)), options)


def plain_loop(options: Namespace) -> Figures:
    """No pool at all: what the tasks take."""
    return pooled(lambda tasks: map(burn, tasks), Namespace(**{**vars(options), "workers": 1}))


WORKLOADS = ("w1", "w2", "w3", "w4")
CONTENDERS: dict[str, dict[str, Workload]] = {
    "multiprocessing-map": dict.fromkeys(WORKLOADS, by_map(multiprocessing.Pool)),
    "multiprocessing-imap": dict.fromkeys(WORKLOADS, by_imap(multiprocessing.Pool)),
    "executor-map": dict.fromkeys(WORKLOADS, by_executor(ProcessPoolExecutor, chunked=False)),
    "executor-chunks": dict.fromkeys(WORKLOADS, by_executor(ProcessPoolExecutor, chunked=True)),
    "thread-map": dict.fromkeys(WORKLOADS, by_map(ThreadPool)),
    "thread-imap": dict.fromkeys(WORKLOADS, by_imap(ThreadPool)),
    "thread-executor": dict.fromkeys(WORKLOADS, by_executor(ThreadPoolExecutor, chunked=False)),
    "run-in-executor": {"w2": by_run_in_executor},
    "plain-loop": dict.fromkeys(WORKLOADS, plain_loop),
}

if __name__ == "__main__":
    sys.exit(run(CONTENDERS))
