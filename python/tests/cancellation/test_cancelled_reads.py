"""Reads that are given up: an iterator goes on, and no item is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import tidewire as tw


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
@pytest.mark.parametrize("seed", range(3))
async def test_a_replay_that_follows_goes_on_after_reads_that_were_cancelled(homes: list[tw.Node], seed: int) -> None:
    one, other = homes
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
async def test_a_watch_goes_on_after_a_read_that_timed_out(homes: list[tw.Node]) -> None:
    one, other = homes
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


@pytest.mark.promise("P17.95")
@pytest.mark.parametrize("seed", range(2))
async def test_no_schedule_of_cancelled_fetches_ends_an_event(homes: list[tw.Node], seed: int) -> None:
    chosen, count = random.Random(seed), 60
    one, other = homes
    stream = await one.stream("orders", subjects=["orders.>"])
    await stream.consumer("billing", start="all", max_deliver=2, ack_wait=600.0)
    consumer = await (await other.find_stream("orders")).consumer("billing", start="all", max_deliver=2, ack_wait=600.0)

    async def publish() -> None:
        for number in range(count):
            await asyncio.sleep(chosen.choice((0.0, 0.001, 0.003)))
            await stream.publish("orders.made", number)

    seen: list[int] = []
    publishing = asyncio.ensure_future(publish())
    while len(seen) < count:
        with suppress(asyncio.TimeoutError):
            event = await asyncio.wait_for(consumer.next(), chosen.choice((0.0005, 0.002, 0.005, 0.02)))
            assert event is not None
            seen.append(event.value)
            await event.ack()
    await publishing
    assert sorted(seen) == list(range(count)), "each event is seen once"
    assert await consumer.dead_letters() == []
