"""Cancellation of the calls of leases, streams and buckets at each of their waits: it arrives,
nothing is held, and the same call succeeds afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import tidewire as tw
from cancel_support import PATIENCE, Story, cancel_each_wait
from home_support import nodes

LONG = 600.0
"""A time that is over long after the story."""


# Leases


async def lease_acquire(one: tw.Node, other: tw.Node, name: str) -> Story:
    lease = one.lease(name, ttl=LONG)
    cancelled = yield lease.acquire()
    if not cancelled:
        await lease.release()
    async with other.lease(name, ttl=LONG, timeout=PATIENCE):
        pass


async def lease_acquire_of_another(one: tw.Node, other: tw.Node, name: str) -> Story:
    held, lease = other.lease(name, ttl=LONG), one.lease(name, ttl=LONG)
    await held.acquire()
    releasing = asyncio.ensure_future(held.release())
    cancelled = yield lease.acquire()
    await releasing
    if not cancelled:
        await lease.release()
    async with other.lease(name, ttl=LONG, timeout=PATIENCE):
        pass


async def lease_release(one: tw.Node, other: tw.Node, name: str) -> Story:
    lease = one.lease(name, ttl=LONG)
    await lease.acquire()
    yield lease.release()
    await lease.release()
    async with other.lease(name, ttl=LONG, timeout=PATIENCE):
        pass


async def lease_block(one: tw.Node, other: tw.Node, name: str) -> Story:
    async def block() -> None:
        async with one.lease(name, ttl=LONG):
            await asyncio.sleep(0)

    yield block()
    async with other.lease(name, ttl=LONG, timeout=PATIENCE):
        pass


# Streams


async def publish(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    yield stream.publish(f"{name}.made", 1, id="first")
    await stream.publish(f"{name}.made", 1, id="first")
    assert (await (await other.find_stream(name)).info()).messages == 1


async def publisher(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])

    async def block() -> None:
        async with stream.publisher(window=2) as publisher:
            for number in range(4):
                await publisher.publish(f"{name}.made", number, id=str(number))
            await publisher.flush()

    yield block()
    await block()
    assert (await (await other.find_stream(name)).info()).messages == 4


async def batch(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])

    async def block() -> None:
        async with stream.batch() as batch:
            for number in range(3):
                batch.publish(f"{name}.made", number)

    cancelled = yield block()
    await block()
    assert (await (await other.find_stream(name)).info()).messages in ((3, 6) if cancelled else (6,)), "all or nothing"


async def schedule(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])

    async def life() -> None:
        await stream.schedule("nightly", "@daily", f"{name}.due", 1)
        assert [each.name for each in await stream.schedules()] == ["nightly"]
        assert await stream.cancel_schedule("nightly")

    yield life()
    await life()
    assert await (await other.find_stream(name)).schedules() == []


async def stream_made(one: tw.Node, other: tw.Node, name: str) -> Story:
    yield one.stream(name, subjects=[f"{name}.>"])
    stream = await other.stream(name, subjects=[f"{name}.>"])
    await stream.publish(f"{name}.made", 1)
    await stream.delete()


async def received(consumer: tw.Consumer, value: int) -> tw.Event:
    event = await consumer.next(PATIENCE)
    assert event is not None
    assert event.value == value
    return event


async def consumer_next(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    consumer = await stream.consumer("billing", start="all", max_deliver=2, ack_wait=LONG)
    publishing = asyncio.ensure_future(stream.publish(f"{name}.made", 1))
    cancelled = yield consumer.next()
    await publishing
    if cancelled:
        again = await (await other.find_stream(name)).consumer("billing", start="all", max_deliver=2, ack_wait=LONG)
        await (await received(again, 1)).ack(wait=True)
    else:
        await consumer.close()


async def consumer_ack(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    consumer = await stream.consumer("billing", start="all", ack_wait=LONG)
    await stream.publish(f"{name}.made", 1)
    event = await received(consumer, 1)
    cancelled = yield event.ack(wait=True)
    if cancelled:
        # The ack may have been stored.
        with suppress(tw.StaleDelivery):
            await event.ack(wait=True)
    await stream.publish(f"{name}.made", 2)
    event = await received(consumer, 2)
    # On NATS the cancelled ack may still be on its way: the acks of a node arrive in order.
    await event.ack(wait=True)
    assert (await consumer.info()).lag == 0


async def consumer_nak(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    consumer = await stream.consumer("billing", start="all", max_deliver=0, ack_wait=LONG)
    await stream.publish(f"{name}.made", 1)
    event = await received(consumer, 1)
    cancelled = yield event.nak(wait=True)
    if cancelled:
        # The nak may have been stored.
        with suppress(tw.StaleDelivery):
            await event.nak(wait=True)
    await (await received(consumer, 1)).ack(wait=True)


async def consumer_block(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    for number in range(3):
        await stream.publish(f"{name}.made", number)
    seen = []

    async def block() -> None:
        async with await stream.consumer("billing", start="all", max_deliver=0, ack_wait=LONG) as billing:
            event = await billing.next(PATIENCE)
            assert event is not None
            seen.append(event.value)
            await event.ack(wait=True)

    yield block()
    consumer = await (await other.find_stream(name)).consumer("billing", start="all", max_deliver=0, ack_wait=LONG)
    left = sorted({0, 1, 2} - set(seen))
    for number in left[1:] if len(seen) == 0 else left:
        event = await consumer.next(PATIENCE)
        assert event is not None, (number, seen)
        await event.ack(wait=True)


async def replay(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    events = (await other.find_stream(name)).read(follow=True)
    for number in range(3):
        await stream.publish(f"{name}.made", number)
    seen: list[int] = []

    async def read() -> None:
        while len(seen) < 3:
            seen.append((await anext(events)).value)

    yield read()
    await read()
    assert seen == [0, 1, 2]
    await events.aclose()


# Buckets


async def bucket_changes(one: tw.Node, other: tw.Node, name: str) -> Story:
    bucket = await one.kv("limits")

    async def changes() -> None:
        revision = await bucket.create(f"{name}-a", 1)
        await bucket.update(f"{name}-a", 2, revision=revision)
        await bucket.put(f"{name}-b", 3)
        assert await bucket.get(f"{name}-b") is not None
        await bucket.delete(f"{name}-a")

    yield changes()
    # A cancelled change may still be on its way. Repeated, it is over.
    await bucket.delete(f"{name}-a")
    await (await other.kv("limits")).put(f"{name}-a", 4)
    found = await bucket.get(f"{name}-a")
    assert found is not None
    assert found.value == 4


async def bucket_watch(one: tw.Node, other: tw.Node, name: str) -> Story:
    bucket = await one.kv("limits")

    async def watching() -> None:
        async with (await other.kv("limits")).watch(name) as changes:
            assert (await anext(changes)).value == 1

    putting = asyncio.ensure_future(bucket.put(name, 1))
    yield watching()
    await putting
    await watching()


HOME_CASES = [
    lease_acquire,
    lease_acquire_of_another,
    lease_release,
    lease_block,
    publish,
    publisher,
    batch,
    schedule,
    stream_made,
    consumer_next,
    consumer_ack,
    consumer_nak,
    consumer_block,
    replay,
    bucket_changes,
    bucket_watch,
]


@pytest.mark.promise("P17.96", "P17.102", "P17.103", "P17.118")
@pytest.mark.parametrize("case", HOME_CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("kind", ["folder", "hub", "nats"])
async def test_calls_of_storage_can_be_cancelled_at_each_wait(
    kind: str, case: Callable[..., Story], tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        await cancel_each_wait(lambda name: case(one, other, name))
