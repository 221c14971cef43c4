"""Pools that nobody refers to any more: their workers end by themselves, after what was
accepted.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from pool_support import story
from tidewire.pools import Pool

PATIENCE = 30.0
KINDS = ("thread", "process")


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"tidewire-{name}-")]


def all_end(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


@pytest.mark.promise("P12.24")
@pytest.mark.parametrize("kind", KINDS)
def test_the_workers_of_a_collected_pool_end(kind: Any) -> None:
    # Threads of earlier tests may still close files: only new ones count.
    gc.collect()
    files = set(os.listdir("/dev/fd"))
    pool = Pool(functions.increment, 2, kind, name="lost")
    assert list(pool.sync.map(range(10))) == list(range(1, 11))
    pids = [worker.get("pid") for worker in pool.statistics()["workers"]]
    threads = threads_of("lost")
    assert threads
    # Not even the collector of cycles is needed.
    gc.disable()
    try:
        del pool
        assert all_end(threads)
    finally:
        gc.enable()
    for pid in pids:
        if pid is not None:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
    assert set(os.listdir("/dev/fd")) <= files


@pytest.mark.promise("P12.24")
@pytest.mark.parametrize("kind", KINDS)
async def test_tasks_keep_their_pool_until_they_are_done(kind: Any) -> None:
    pool = Pool(functions.increment, 1, kind, capacity=10, name="kept")
    futures = [pool.submit(n) for n in range(200)]
    threads = threads_of("kept")
    del pool
    gc.collect()
    assert await asyncio.gather(*futures) == list(range(1, 201))
    assert await asyncio.to_thread(all_end, threads)


@pytest.mark.promise("P12.24")
def test_a_map_keeps_its_pool_until_it_is_over() -> None:
    async def items() -> Any:
        for n in range(100):
            await asyncio.sleep(0)
            yield n

    async def main() -> None:
        assert [n async for n in Pool(functions.increment, 1, name="mapped").map(range(100), ahead=3)] == list(
            range(1, 101)
        )
        assert [n async for n in Pool(functions.increment, 1, name="mapped").map(items(), ahead=3)] == list(
            range(1, 101)
        )

    story(main)
    assert list(Pool(functions.increment, 1, name="mapped").sync.map(range(100), ahead=3)) == list(range(1, 101))
    gc.collect()
    assert all_end(threads_of("mapped"))


def test_a_pool_is_collected_in_the_middle_of_its_own_lock() -> None:
    pool = Pool(functions.increment, 1, name="locked")
    assert pool.sync.submit(1) == 2
    threads, lock = threads_of("locked"), pool._core.lock
    cycle: list[Any] = [pool]
    cycle.append(cycle)
    with lock:
        del pool, cycle
        gc.collect()
    assert all_end(threads)


def test_a_task_that_nobody_waits_for_is_done_before_a_collected_pool_ends() -> None:
    entered, go, done = threading.Event(), threading.Event(), threading.Event()

    def work(_: int) -> None:
        entered.set()
        assert go.wait(PATIENCE)
        done.set()

    async def main() -> None:
        pool = Pool(work, 1, name="forgotten")
        cancelled = pool.submit(1)
        assert await asyncio.to_thread(entered.wait, PATIENCE)
        cancelled.cancel()

    story(main)
    gc.collect()
    threads = threads_of("forgotten")
    assert threads
    go.set()
    assert all_end(threads)
    assert done.is_set()


async def test_a_stop_without_a_limit_waits_for_a_task() -> None:
    entered, go = threading.Event(), threading.Event()

    def work(n: int) -> int:
        entered.set()
        assert go.wait(PATIENCE)
        return n

    pool = Pool(work, 1, capacity=1)
    task = pool.submit(1)
    assert await asyncio.to_thread(entered.wait, PATIENCE)
    waiting, without_room = pool.submit(2), pool.submit(3)
    stopping = asyncio.ensure_future(pool.stop(timeout=None))
    # The keeper refuses it when it hears of the stop, and then sleeps without a limit.
    with pytest.raises(tw.PoolStopped):
        await without_room
    go.set()
    assert await asyncio.gather(task, waiting) == [1, 2]
    assert (await stopping).handled == 2
