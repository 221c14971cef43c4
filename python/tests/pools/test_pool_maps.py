"""Maps whose items come slowly: what there is, is submitted, and results are there before the next
item.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from tidewire.pools import Pool

PATIENCE = 30.0
KINDS = ("thread", "process")


@pytest.mark.promise("P12.22")
@pytest.mark.parametrize("kind", KINDS)
async def test_each_result_is_there_before_the_next_item(kind: Any) -> None:
    queue: asyncio.Queue[int | None] = asyncio.Queue(1_000)

    async def items() -> AsyncIterator[int]:
        while (item := await queue.get()) is not None:
            yield item

    async with Pool(functions.increment, 2, kind) as pool:
        results = pool.map(items())
        for n in range(5):
            queue.put_nowait(n)
            assert await asyncio.wait_for(anext(results), PATIENCE) == n + 1
        for n in range(5, 1_000):
            queue.put_nowait(n)
        queue.put_nowait(None)
        assert [n async for n in results] == list(range(6, 1_001))
        assert pool.statistics()["accepted"] == 1_000


@pytest.mark.promise("P12.22")
@pytest.mark.parametrize("ahead", [1, 2, 7])
async def test_no_more_items_are_read_than_the_look_ahead_allows(ahead: int) -> None:
    read = 0

    async def items() -> AsyncIterator[int]:
        nonlocal read
        for n in range(50):
            read += 1
            if n % 3:
                await asyncio.sleep(0)
            yield n

    async with Pool(functions.increment, 2) as pool:
        taken = 0
        async for result in pool.map(items(), ahead=ahead):
            taken += 1
            assert result == taken
            assert read <= taken + ahead
        assert taken == 50


async def test_a_map_that_is_left_ends_the_reading_of_its_items() -> None:
    ended = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Pool(functions.increment, 1) as pool:
        results: Any = pool.map(items())
        assert await anext(results) == 2
        await results.aclose()
        assert ended.is_set()
        assert await pool.submit(2) == 3


async def test_items_that_are_cancelled_cancel_their_map() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        raise asyncio.CancelledError

    async with Pool(functions.increment, 1) as pool:
        results = pool.map(items())
        assert await anext(results) == 2
        with pytest.raises(asyncio.CancelledError):
            await anext(results)


async def test_a_stop_ends_a_map_that_waits_for_items() -> None:
    more = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        await more.wait()
        yield 2

    pool = Pool(functions.increment, 1)
    results = pool.map(items())
    assert await anext(results) == 2
    await pool.stop()
    more.set()
    with pytest.raises(tw.PoolStopped):
        await anext(results)


def test_the_results_of_slow_plain_items_are_there_before_all_are_read() -> None:
    done = threading.Semaphore(0)

    def work(n: int) -> int:
        done.release()
        return n

    def items() -> Iterator[int]:
        for n in range(4):
            yield n
            if n:
                # The item before this one has been handled while more could be read.
                assert done.acquire(timeout=PATIENCE)

    with Pool(work, 1) as pool:
        # The time for one part is over with each of its items.
        assert list(pool.sync.map(slowly(items()))) == [0, 1, 2, 3]


def slowly(items: Iterator[int]) -> Iterator[int]:
    for item in items:
        # In the sleep a map hands over the items that it has read.
        time.sleep(0.002)
        yield item


@pytest.mark.parametrize("later", [False, True])
async def test_an_item_that_can_not_travel_ends_a_map_after_the_items_before_it(later: bool) -> None:
    async def items() -> AsyncIterator[Any]:
        for item in (1, 2, threading.Lock(), 4):
            yield item

    async with Pool(functions.increment, 1, "process") as pool:
        got = []
        with pytest.raises(tw.InvalidArgument, match="pickled"):
            async for result in pool.map(items() if later else [1, 2, threading.Lock(), 4]):
                got.append(result)
        assert got == [2, 3]
        assert (pool.statistics()["accepted"], pool.statistics()["waiting_for_room"]) == (2, 0)
        assert await pool.submit(4) == 5
