"""Waits that are given up: an event stays for the next reader, a lease stays free, a cancellation
arrives.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest
from home_support import every_home, nodes


@pytest.mark.promise("P17.95")
@every_home
@pytest.mark.parametrize("seed", range(2))
async def test_no_schedule_of_cancelled_fetches_ends_an_event(kind: str, seed: int, tmp_path: Path) -> None:
    chosen, count = random.Random(seed), 60
    async with nodes(kind, tmp_path) as (one, other):
        stream = await one.stream("orders", subjects=["orders.>"])
        await stream.consumer("billing", start="all", max_deliver=2, ack_wait=600.0)
        consumer = await (await other.find_stream("orders")).consumer(
            "billing", start="all", max_deliver=2, ack_wait=600.0
        )

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


@pytest.mark.promise("P17.100")
@every_home
async def test_events_that_a_closed_consumer_gives_back_use_up_no_attempt(kind: str, tmp_path: Path) -> None:
    async with nodes(kind, tmp_path, 1) as (node,):
        stream = await node.stream("orders", subjects=["orders.>"])
        for number in range(20):
            await stream.publish("orders.made", number)
        seen = []
        while len(seen) < 20:
            async with await stream.consumer("billing", start="all", max_deliver=2, ack_wait=60.0) as billing:
                for _ in range(2):
                    event = await billing.next(timeout=10.0)
                    assert event is not None, "an event that went back is there again"
                    seen.append(event.value)
                    await event.ack(wait=True)
        assert sorted(seen) == list(range(20))
        assert await billing.dead_letters() == []
