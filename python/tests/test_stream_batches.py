"""Batches of messages that are stored whole or not at all: in a folder, at a hub and on NATS."""

from __future__ import annotations

from pathlib import Path

import pytest
import tidewire as tw
from home_support import every_home, nodes, story


@every_home
@story
async def test_a_batch_is_stored_whole_when_its_block_is_left(kind: str, tmp_path: Path) -> None:
    async with nodes(kind, tmp_path, 1) as (node,):
        orders = await node.stream("orders", subjects=["orders.>", "stock.>"])
        async with orders.batch() as batch:
            batch.publish("orders.created", {"n": 1}, key="anna", id="one")
            batch.publish("stock.taken", b"raw", content="bytes")
            assert (await orders.info()).messages == 0
        assert [ack.sequence for ack in batch.acks] == [1, 2]
        events = [event async for event in orders.read()]
        assert [(event.subject, event.value, event.key) for event in events] == [
            ("orders.created", {"n": 1}, "anna"),
            ("stock.taken", b"raw", None),
        ]
        with pytest.raises(tw.InvalidArgument, match="the block of this batch was left"):
            batch.publish("orders.created", 2)
        async with orders.batch() as empty:
            pass
        assert empty.acks == [] and (await orders.info()).messages == 2


@every_home
@story
async def test_of_a_batch_with_a_wrong_message_and_of_a_block_that_raises_nothing_is_stored(
    kind: str, tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path, 1) as (node,):
        orders = await node.stream("orders", subjects=["orders.>"])
        with pytest.raises(tw.TidewireError) as failed:
            async with orders.batch() as batch:
                batch.publish("orders.created", 1)
                batch.publish("elsewhere", 2)
                batch.publish("orders.created", 3)
        assert "elsewhere" in str(failed.value)
        with pytest.raises(RuntimeError, match="changed my mind"):
            async with orders.batch() as batch:
                batch.publish("orders.created", 1)
                raise RuntimeError("changed my mind")
        with pytest.raises(tw.InvalidArgument, match="a batch has at most 1,000 messages"):
            async with orders.batch() as batch:
                for number in range(1_001):
                    batch.publish("orders.created", number)
        assert (await orders.info()).messages == 0 and batch.acks == []
