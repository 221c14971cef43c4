"""Deliveries that go back to the stream unseen: no event is lost or dead by that."""

from __future__ import annotations

from pathlib import Path

import pytest
from home_support import every_home, nodes, story

PATIENCE_S = 20.0
LONG_S = 600.0


@pytest.mark.promise("P17.100")
@every_home
@story
async def test_an_event_whose_last_delivery_is_returned_is_not_dead(kind: str, tmp_path: Path) -> None:
    async with nodes(kind, tmp_path, 1) as [node]:
        stream = await node.stream("orders", subjects=["orders.>"])
        for number in range(40):
            await stream.publish("orders.new", number)
        seen = []
        while len(seen) < 40:
            async with await stream.consumer("billing", start="all", max_deliver=1, ack_wait=LONG_S) as consumer:
                # The second fetch takes several events ahead, and closing returns them.
                for _ in range(2):
                    if (event := await consumer.next(PATIENCE_S)) is not None:
                        seen.append(event.value)
                        await event.ack()
                assert await consumer.dead_letters() == []
        assert sorted(seen) == list(range(40))


@every_home
@story
async def test_a_requeued_event_that_fails_again_comes_again(kind: str, tmp_path: Path) -> None:
    async with nodes(kind, tmp_path, 1) as [node]:
        stream = await node.stream("orders", subjects=["orders.>"])
        consumer = await stream.consumer("billing", start="all", max_deliver=2, ack_wait=LONG_S)
        await stream.publish("orders.new", "first")
        event = await consumer.next(PATIENCE_S)
        assert event is not None
        await event.term("unreadable", wait=True)
        assert await consumer.requeue(event.sequence) == 1
        for delivery in (1, 2):
            event = await consumer.next(PATIENCE_S)
            assert event is not None and (event.value, event.delivery) == ("first", delivery)
            await event.nak(wait=True)
        assert [letter.sequence for letter in await consumer.dead_letters()] == [1]
