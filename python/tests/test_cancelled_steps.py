"""Cancellation of public coroutines at each of their waits: it arrives, nothing is held, and the
same call succeeds afterwards.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from cancel_support import PATIENCE, Story, cancel_each_wait
from home_support import nodes, story

LONG = 600.0
"""A time that is over long after the story."""

Nodes = tuple[tw.Node, tw.Node]


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


async def consumer_next(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    consumer = await stream.consumer("billing", start="all", max_deliver=2, ack_wait=LONG)
    publishing = asyncio.ensure_future(stream.publish(f"{name}.made", 1))
    cancelled = yield consumer.next()
    await publishing
    if cancelled:
        again = await (await other.find_stream(name)).consumer("billing", start="all", max_deliver=2, ack_wait=LONG)
        event = await again.next(PATIENCE)
        assert event is not None
        assert event.value == 1
        await event.ack(wait=True)
    else:
        await consumer.close()


async def consumer_ack(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    consumer = await stream.consumer("billing", start="all", ack_wait=LONG)
    await stream.publish(f"{name}.made", 1)
    event = await consumer.next(PATIENCE)
    assert event is not None
    cancelled = yield event.ack(wait=True)
    if cancelled:
        # The ack may have been stored.
        again = asyncio.ensure_future(event.ack(wait=True))
        await asyncio.wait({again})
        assert again.exception() is None or isinstance(again.exception(), tw.StaleDelivery), again
    # On NATS the cancelled one may still be on its way.
    while (await consumer.info()).lag:
        await asyncio.sleep(0.001)
    await stream.publish(f"{name}.made", 2)
    event = await consumer.next(PATIENCE)
    assert event is not None
    assert event.value == 2


async def consumer_nak(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    consumer = await stream.consumer("billing", start="all", max_deliver=0, ack_wait=LONG)
    await stream.publish(f"{name}.made", 1)
    event = await consumer.next(PATIENCE)
    assert event is not None
    cancelled = yield event.nak(wait=True)
    if cancelled:
        # The nak may have been stored.
        again = asyncio.ensure_future(event.nak(wait=True))
        await asyncio.wait({again})
        assert again.exception() is None or isinstance(again.exception(), tw.StaleDelivery), again
    event = await consumer.next(PATIENCE)
    assert event is not None
    assert event.value == 1
    await event.ack(wait=True)


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


# Commands


class Books(tw.Service):
    """A command that waits for nothing, and one that waits for ever."""

    @tw.command(exclusive="key", concurrency=4)
    async def index(self, number: int, progress: tw.Progress) -> int:
        await progress(0.5)
        return number * 2

    @tw.command
    async def hang(self) -> None:
        await asyncio.Event().wait()


async def command(one: tw.Node, other: tw.Node, name: str) -> Story:
    async def started() -> None:
        run = await other.client(Books).index.start(7, key=name, id=name)
        assert await run.result(PATIENCE) == 14
        assert (await run.info()).stage == "succeeded"

    yield started()
    await started()


async def command_cancel(one: tw.Node, other: tw.Node, name: str) -> Story:
    run = await other.client(Books).hang.start(id=name)
    yield run.cancel()
    await run.cancel()
    with pytest.raises(tw.CallCancelled):
        await run.result(PATIENCE)


# Services of which one is active


class Matching(tw.Service):
    @tw.method(idempotent=True)
    async def who(self) -> int:
        return 1


async def single_active(one: tw.Node, other: tw.Node, name: str) -> Story:
    served: list[tw.SingleActive] = []

    async def active() -> None:
        served.append(one.serve(Matching(), name=name, active="single", lease=LONG))
        await served[0]
        await served[0].active(PATIENCE)

    yield active()
    for one_served in served:
        await one_served.stop()
    second = await other.serve(Matching(), name=name, active="single", lease=LONG)
    await second.active(PATIENCE)
    assert await other.client(Matching, name).who() == 1
    await second.stop()


async def single_stop(one: tw.Node, other: tw.Node, name: str) -> Story:
    served = await one.serve(Matching(), name=name, active="single", lease=LONG)
    await served.active(PATIENCE)
    cancelled = yield served.stop()
    if cancelled:
        assert (await served.stop()).balanced
    second = await other.serve(Matching(), name=name, active="single", lease=LONG)
    await second.active(PATIENCE)
    assert await other.client(Matching, name).who() == 1
    await second.stop()


# Durable handlers and agents


async def durable_awaited(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    seen: asyncio.Queue[int] = asyncio.Queue(10)

    class Billing(tw.Service):
        @tw.on(f"{name}.*", durable="billing", start="all", ack_wait=LONG)
        async def on_made(self, number: int) -> None:
            seen.put_nowait(number)

    served = one.serve(Billing(), name=name)

    async def awaited() -> None:
        await served

    yield awaited()
    await served
    await stream.publish(f"{name}.made", 1)
    assert await asyncio.wait_for(seen.get(), PATIENCE) == 1
    await served.stop()


async def durable_stop(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    inside, going_on, seen = asyncio.Event(), asyncio.Event(), []

    class Billing(tw.Service):
        @tw.on(f"{name}.*", durable="billing", start="all", ack_wait=LONG)
        async def on_made(self, number: int) -> None:
            inside.set()
            await going_on.wait()
            seen.append(number)

    served = await one.serve(Billing(), name=name)
    await stream.publish(f"{name}.made", 1)
    await inside.wait()
    asyncio.get_running_loop().call_later(0.01, going_on.set)
    yield served.stop()
    assert (await served.stop()).balanced
    assert seen == [1]


async def single_stop_busy(one: tw.Node, other: tw.Node, name: str) -> Story:
    inside, going_on = asyncio.Event(), asyncio.Event()

    class Slow(tw.Service):
        @tw.method
        async def work(self) -> bool:
            inside.set()
            await going_on.wait()
            return served.fence > 0

    served = await one.serve(Slow(), name=name, active="single", lease=LONG)
    await served.active(PATIENCE)
    if other is not one:
        await other.until(lambda now: now["links"]["services"].get(name), PATIENCE)
    working = asyncio.ensure_future(other.client(Slow, name).work())
    await inside.wait()
    cancelled = yield _stop_at_work(served, going_on)
    going_on.set()
    if cancelled:
        assert (await served.stop()).balanced
    assert await working, "a call that came is finished under the lease"
    second = await other.serve(Slow(), name=name, active="single", lease=LONG)
    await second.active(PATIENCE)
    await second.stop()


async def _stop_at_work(served: Any, going_on: asyncio.Event) -> None:
    asyncio.get_running_loop().call_later(0.01, going_on.set)
    await served.stop()


async def durable_served(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    seen: asyncio.Queue[int] = asyncio.Queue(10)

    class Billing(tw.Service):
        @tw.on(f"{name}.*", durable="billing", start="all", ack_wait=LONG)
        async def on_made(self, number: int) -> None:
            seen.put_nowait(number)

    served: list[tw.Served] = []

    async def serving() -> None:
        served.append(one.serve(Billing(), name=name))
        await served[0]
        await stream.publish(f"{name}.made", 1, id="1")
        await seen.get()
        await served[0].stop()

    yield serving()
    for each in served:
        await each.stop()
    while not seen.empty():
        seen.get_nowait()
    again = await other.serve(Billing(), name=name)
    await stream.publish(f"{name}.made", 2)
    while await asyncio.wait_for(seen.get(), PATIENCE) != 2:
        pass
    await again.stop()


async def durable_agent(one: tw.Node, other: tw.Node, name: str) -> Story:
    seen: asyncio.Queue[int] = asyncio.Queue(10)

    async def note(number: int) -> None:
        seen.put_nowait(number)

    agents: list[Any] = []

    async def agent_life() -> None:
        agents.append(one.agent(note, id=name, durable="inbox"))
        await agents[0].active(PATIENCE)
        await agents[0].send(1, to=name, durable=True)
        await seen.get()
        await agents[0].stop()

    yield agent_life()
    for agent in agents:
        await agent.stop()
    again = other.agent(note, id=name, durable="inbox")
    await again.active(PATIENCE)
    await again.send(2, to=name, durable=True)
    while await asyncio.wait_for(seen.get(), PATIENCE) != 2:
        pass
    await again.stop()


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
    command,
    command_cancel,
    single_active,
    single_stop,
    single_stop_busy,
    durable_awaited,
    durable_stop,
    durable_served,
    durable_agent,
]

ROUNDS = {single_active: 12, single_stop: 12, single_stop_busy: 12, durable_stop: 12, durable_agent: 12, command: 12}
"""Of cases whose work is done by other tasks: in how many rounds of the loop they are cancelled."""


@pytest.mark.promise("P17.102", "P17.103", "P17.118")
@pytest.mark.parametrize("case", HOME_CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("kind", ["folder", "hub", "nats"])
@story
async def test_what_lives_in_a_home_can_be_cancelled_at_each_wait(
    kind: str, case: Callable[..., Story], tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        served = await one.serve(Books())
        await cancel_each_wait(lambda name: case(one, other, name), ROUNDS.get(case, 0))
        await served.stop()


@pytest.mark.parametrize("kind", ["folder", "hub", "nats"])
@story
async def test_a_command_that_meets_a_stop_of_its_worker_goes_to_the_next_one_at_once(
    kind: str, tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        for rounds in range(15):
            served = await one.serve(Books(), name="books", instance="books")
            run = await other.client(Books, "books").index.start(7, key=str(rounds))
            for _ in range(rounds):
                await asyncio.sleep(0)
            await served.stop(drain=False)
            served = await one.serve(Books(), name="books", instance="books")
            # A token that is lost comes again after five seconds.
            assert await run.result(4.0) == 14
            await served.stop()


# Nodes


@pytest.mark.promise("P17.102")
@pytest.mark.parametrize("kind", ["hub", "nats"])
@story
async def test_a_node_whose_entry_was_cancelled_has_left(kind: str, tmp_path: Path) -> None:
    async def block(url: str, name: str) -> None:
        async with tw.Node(url, name=name, inspect=False) as node:
            await node.serve({"add": max}, name=name)
            assert await node.client(name).add(1, 2) == 2

    async def attempt(url: str, name: str) -> Story:
        yield block(url, name)
        # The name is free again at once.
        await block(url, name)

    async with nodes(kind, tmp_path) as (one, _):
        await cancel_each_wait(lambda name: attempt(one.url, name))


# Calls


class Shop(tw.Service):
    """Methods of each shape; ``open`` counts what is under way."""

    def __init__(self) -> None:
        self.open = 0

    @tw.method
    async def sell(self, number: int) -> int:
        self.open += 1
        try:
            await asyncio.sleep(0)
            return number
        finally:
            self.open -= 1

    @tw.method
    def plain(self, number: int) -> int:
        return number

    @tw.method
    async def count(self, to: int) -> AsyncIterator[int]:
        self.open += 1
        try:
            for number in range(to):
                await asyncio.sleep(0)
                yield number
        finally:
            self.open -= 1

    @tw.method
    async def total(self, numbers: AsyncIterator[int]) -> int:
        self.open += 1
        try:
            return sum([number async for number in numbers])
        finally:
            self.open -= 1


async def numbers() -> AsyncIterator[int]:
    for number in range(3):
        await asyncio.sleep(0)
        yield number


async def call(client: Any) -> None:
    assert await client.sell(1) == 1


async def plain_call(client: Any) -> None:
    assert await client.plain(1) == 1


async def stream_call(client: Any) -> None:
    assert [number async for number in client.count(4)] == [0, 1, 2, 3]


async def stream_block(client: Any) -> None:
    async with client.count(100) as items:
        assert await anext(items) == 0


async def stream_argument(client: Any) -> None:
    assert await client.total(numbers()) == 3


@pytest.mark.promise("P17.102")
@pytest.mark.parametrize("kind", ["local", "hub", "nats"])
@pytest.mark.parametrize(
    "work", [call, plain_call, stream_call, stream_block, stream_argument], ids=lambda one: one.__name__
)
@story
async def test_a_call_can_be_cancelled_at_each_wait(kind: str, work: Callable[[Any], Any], tmp_path: Path) -> None:
    async def attempt(shop: Shop, client: Any) -> Story:
        yield work(client)
        await work(client)
        for _ in range(1_000):
            if not shop.open:
                break
            await asyncio.sleep(0.001)
        assert shop.open == 0, "a handler goes on"

    async with nodes("folder" if kind == "local" else kind, tmp_path) as (one, other):
        shop = Shop()
        # A cancelled call that the loop has not begun or dropped yet waits, as the next one does.
        served = await one.serve(shop, concurrency=2, waiting=8, streams=2)
        client = other.client(Shop)
        await other.until(lambda now: now["links"]["services"].get("shop"), PATIENCE)
        await cancel_each_wait(lambda _: attempt(shop, client))
        assert (await served.stop()).balanced


async def serving(one: tw.Node, other: tw.Node, name: str) -> Story:
    served = one.serve(Shop(), name=name, instance=name)

    async def life() -> None:
        await served
        await served.stop()

    yield life()
    await served.stop()
    again = await one.serve(Shop(), name=name, instance=name)
    assert await one.client(Shop, name).sell(1) == 1
    await again.stop()


async def agent_request(one: tw.Node, other: tw.Node, name: str) -> Story:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    agent, desk = one.agent(double, id=name), one.agent(lambda payload: None, id=f"{name}-desk")

    async def life() -> None:
        assert await desk.request(2, to=name, timeout=PATIENCE) == 4
        await agent.stop()

    cancelled = yield life()
    if cancelled:
        await agent.stop()
    again = one.agent(double, id=name)
    assert await desk.request(2, to=name, timeout=PATIENCE) == 4
    await again.stop()
    await desk.stop()


async def actor_life(one: tw.Node, other: tw.Node, name: str) -> Story:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    ref = one.spawn(double, name=name, mailbox=1)

    async def life() -> None:
        assert await ref.ask(2, PATIENCE) == 4
        for number in range(3):
            await ref.send(number)
        await one.idle(PATIENCE)
        assert (await ref.stop()).balanced

    yield life()
    await ref.stop()
    again = one.spawn(double, name=name)
    assert await again.ask(2, PATIENCE) == 4
    await again.stop()


async def pool_life(one: tw.Node, other: tw.Node, name: str) -> Story:
    pools: list[tw.Pool[Any, Any]] = []

    async def life() -> None:
        async with tw.Pool(abs, 1, name=name) as pool:
            pools.append(pool)
            assert await pool.submit(-1) == 1
            assert [item async for item in pool.map([-1, -2])] == [1, 2]
            assert [item async for item in pool.map(numbers())] == [0, 1, 2]
            await pool.until(lambda now: now["in_workers"] == 0, PATIENCE)

    yield life()
    for pool in pools:
        assert (await pool.stop()).balanced
    await life()


async def pool_until(one: tw.Node, other: tw.Node, name: str) -> Story:
    going_on = threading.Event()

    async def is_idle() -> None:
        await pool.until(lambda now: not now["waiting"] and not now["in_workers"], PATIENCE)

    async with tw.Pool(going_on.wait, 1) as pool:
        task = pool.submit(PATIENCE)
        asyncio.get_running_loop().call_later(0.005, going_on.set)
        yield is_idle()
        assert await task
        await is_idle()


async def node_life(one: tw.Node, other: tw.Node, name: str) -> Story:
    found: list[tw.Node] = []

    async def life() -> None:
        async with tw.Node(name=name) as node:
            found.append(node)
            listener = node.listen("tide://127.0.0.1:0")
            async with tw.Node(listener.url, name=f"{name}-2") as joined:
                await joined.serve(Shop())
                assert await node.client(Shop).sell(1) == 1
            listener.close()

    yield life()
    for node in found:
        assert node.ledger is not None
        assert node.ledger.balanced
    await life()


@pytest.mark.parametrize(
    "case", [serving, agent_request, actor_life, pool_life, pool_until, node_life], ids=lambda case: case.__name__
)
@pytest.mark.parametrize("kind", ["folder", "hub"])
@story
async def test_what_runs_in_a_node_can_be_cancelled_at_each_wait(
    kind: str, case: Callable[..., Story], tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        await cancel_each_wait(lambda name: case(one, other, name))
