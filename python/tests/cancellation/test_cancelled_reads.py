"""Reads that are given up: an iterator goes on, and no item is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import every_home, nodes


async def read_with_cancels(items: AsyncIterator[Any], count: int, seed: int) -> list[Any]:
    """Reads so many items; before each, some reads are cancelled after a few rounds of the loop."""
    chosen, found = random.Random(seed), list[Any]()
    while len(found) < count:
        reading = asyncio.ensure_future(anext(items))
        for _ in range(chosen.choice((0, 0, 1, 2, 5, 50))):
            await asyncio.sleep(0)
        if chosen.random() < 0.6:
            reading.cancel()
        [read] = await asyncio.gather(reading, return_exceptions=True)
        if not isinstance(read, asyncio.CancelledError):
            found.append(read)
    return found


@pytest.mark.promise("P17.94")
@every_home
@pytest.mark.parametrize("seed", range(3))
async def test_a_replay_that_follows_goes_on_after_reads_that_were_cancelled(
    kind: str, seed: int, tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        stream = await one.stream("orders", subjects=["orders.>"])
        events = (await other.find_stream("orders")).read(follow=True)
        reading = asyncio.ensure_future(read_with_cancels(events, 40, seed))
        for number in range(40):
            await stream.publish("orders.made", number)
        assert [event.value for event in await reading] == list(range(40))
        await events.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(events)


@pytest.mark.promise("P17.94")
@every_home
async def test_a_watch_goes_on_after_a_read_that_timed_out(kind: str, tmp_path: Path) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        bucket = await one.kv("limits")
        async with (await other.kv("limits")).watch() as changes:
            for number in range(5):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(anext(changes), 0.02)
                await bucket.put("eu", number)
                entry = await anext(changes)
                assert (entry.key, entry.value) == ("eu", number)


@pytest.mark.promise("P17.94")
async def test_a_watch_of_services_goes_on_after_a_read_that_timed_out() -> None:
    async with tw.Node() as node:
        changes = node.watch_services("shop")
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(changes), 0.02)
            served = await node.serve({"sell": abs}, name="shop")
            assert (await anext(changes)).kind == "joined"
            await served.stop()
            assert (await anext(changes)).kind == "left"
