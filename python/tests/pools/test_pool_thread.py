"""Pools of threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from tidewire.pools import Batch, Pool


class Door:
    """A function that waits until it is let through."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, value: Any) -> Any:
        self.entered.release()
        assert self.opened.wait(50)
        return value


def test_arguments_are_passed_by_reference_and_any_function_will_do() -> None:
    seen: list[object] = []
    thing = object()
    with Pool(lambda *, named: seen.append(named), 1) as pool:
        assert pool.sync.submit(named=thing) is None
    assert seen == [thing]


def test_coroutine_functions_run_on_a_loop_of_the_worker() -> None:
    with Pool(functions.later, 2) as pool:
        assert list(pool.sync.map(range(100))) == list(range(1, 101))


async def test_as_many_tasks_run_at_once_as_there_are_workers() -> None:
    door = Door()
    async with Pool(door, 3) as pool:
        futures = [pool.submit(n) for n in range(5)]
        for _ in range(3):
            assert await asyncio.to_thread(door.entered.acquire, timeout=20)
        statistics = pool.statistics()
        assert (statistics["in_workers"], statistics["waiting"]) == (3, 2)
        assert sorted(worker["task"] for worker in statistics["workers"]) == [1, 2, 3]
        assert not door.entered.acquire(blocking=False)
        door.opened.set()
        assert await asyncio.gather(*futures) == list(range(5))


def test_an_error_has_the_type_and_the_trace_of_where_it_was_raised() -> None:
    with Pool(functions.divide, 1) as pool:
        with pytest.raises(ZeroDivisionError) as caught:
            pool.sync.submit(1, 0)
        assert any(entry.name == "divide" for entry in caught.traceback)
        assert pool.sync.submit(1, 2) == 0.5
    assert pool.ledger == tw.Ledger(2, 1, 0, 1, reason="stopped")


@pytest.mark.parametrize("kind", ["thread", "process"])
async def test_an_exit_in_a_task_is_only_an_error_of_the_task(kind: Any) -> None:
    async with Pool(functions.raise_it, 1, kind) as pool:
        for error in (SystemExit(3), KeyboardInterrupt(), StopIteration(1), StopAsyncIteration(), GeneratorExit()):
            with pytest.raises(tw.RemoteError) as caught:
                await pool.submit(error)
            assert caught.value.type_name == type(error).__name__
            assert "raise_it" in caught.value.remote_traceback
        assert pool.statistics()["restarts"] == 0


@pytest.mark.promise("P12.10")
async def test_a_hung_thread_is_abandoned_and_replaced() -> None:
    async def hang_once() -> None:
        door = Door()
        async with Pool(lambda n: door(n) if n < 0 else n, 1, task_timeout=0.05) as pool:
            hung, behind = pool.submit(-1), pool.submit(2)
            with pytest.raises(tw.TaskTimeout, match=r"task_timeout=0\.05 s"):
                await hung
            assert await behind == 2
            assert pool.statistics()["restarts"] == 1
            door.opened.set()
            assert await pool.submit(3) == 3
        assert pool.ledger is not None
        assert (pool.ledger.accepted, pool.ledger.handled, pool.ledger.dead_lettered) == (3, 2, 1)

    # The task may begin before or after the keeper has fallen asleep.
    for _ in range(20):
        await hang_once()


async def test_a_pool_with_too_many_stuck_threads_fails() -> None:
    door = Door()
    pool = Pool(door, 16, task_timeout=0.05)
    ended = await asyncio.gather(*[pool.submit(n) for n in range(200)], return_exceptions=True)
    assert {type(error) for error in ended} == {tw.TaskTimeout, tw.PoolFailed}
    assert pool.state == "failed"
    door.opened.set()
    assert (await pool.stop()).balanced


async def test_a_batch_is_handed_over_when_its_budget_is_spent() -> None:
    door = Door()

    def handle(batch: list[str]) -> list[str]:
        return [door(value) if value == "slow" else value for value in batch]

    async with Pool(handle, 2, batch=Batch(size_max=10, budget_ms=20)) as pool:
        slow = pool.submit("slow")
        assert await asyncio.to_thread(door.entered.acquire, timeout=20)
        assert await pool.submit("quick") == "quick"
        door.opened.set()
        assert await slow == "slow"


@pytest.mark.promise("P12.20")
def test_a_coroutine_is_cancelled_when_the_time_of_a_stop_is_over() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def never(_: int) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def main() -> None:
        pool = tw.Pool(never, workers=1, kind="thread", name="patient")
        task = asyncio.ensure_future(pool.submit(1))
        await asyncio.to_thread(begun.wait)
        await pool.stop(timeout=0)
        with pytest.raises(tw.PoolStopped):
            await task

    asyncio.run(main())
    assert ended.wait(30)
    for thread in threading.enumerate():
        if thread.name.startswith("tidewire-patient"):
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.promise("P12.12")
async def test_stop_names_the_thread_that_is_stuck_and_where() -> None:
    door = Door()
    pool = Pool(door, 1, name="sticky")
    stuck, behind = pool.submit(1), pool.submit(2)
    assert await asyncio.to_thread(door.entered.acquire, timeout=20)
    ledger = await pool.stop(timeout=0.05)
    assert (ledger.accepted, ledger.dead_lettered) == (2, 2)
    assert ledger.threads == ("tidewire-sticky-1",)
    assert any("__call__" in line for line in ledger.stuck[0].where)
    for future in (stuck, behind):
        with pytest.raises(tw.PoolStopped):
            await future
    door.opened.set()


def test_a_pool_runs_once_its_first_task_is_done_and_leaves_no_thread_after_stop() -> None:
    before = set(threading.enumerate())
    for _ in range(50):
        with Pool(functions.increment, 4) as pool:
            assert pool.sync.submit(1) == 2
            assert pool.statistics()["state"] == "running"
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_pool_serves_threads_and_loops_at_once_and_stops_the_same_for_all(kind: Any) -> None:
    pool = Pool(functions.increment, 2, kind, capacity=50)
    sums: list[int] = []
    ledgers: list[tw.Ledger] = []

    def one_by_one() -> None:
        sums.append(sum(pool.sync.submit(n) for n in range(200)))

    def mapped() -> None:
        sums.append(sum(pool.sync.map(range(200))))

    def on_a_loop() -> None:
        async def main() -> None:
            sums.append(sum(await asyncio.gather(*[pool.submit(n) for n in range(200)])))

        asyncio.run(main())

    calls = [one_by_one, mapped, on_a_loop] * 3
    stops = [lambda: ledgers.append(pool.sync.stop()), lambda: ledgers.append(asyncio.run(pool.stop()))] * 2
    for together in (calls, stops):
        threads = [threading.Thread(target=call) for call in together]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
            assert not thread.is_alive()
    assert sums == [sum(range(1, 201))] * 9
    assert ledgers == [tw.Ledger(1_800, 1_800, 0, 0, reason="stopped")] * 4
    with pytest.raises(tw.PoolStopped):
        pool.sync.submit(1)
