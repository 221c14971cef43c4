"""The end of a node: events that it has fetched are there for others at once, and those that wait
for events learn of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import PATIENCE, every_home, nats_server

ACK_WAIT = 4 * PATIENCE
"""Longer than a story takes: an event that waits for it does not come."""


@asynccontextmanager
async def place(kind: str, folder: Path) -> AsyncIterator[Callable[[], tw.Node]]:
    """A storage backend, as a function that makes nodes of it: of a folder one after the other."""
    async with AsyncExitStack() as stack:
        if kind == "folder":
            yield lambda: tw.Node(data=folder)
        elif kind == "hub":
            hub = await stack.enter_async_context(tw.Node(data=folder))
            url = hub.listen("tide://127.0.0.1:0").url
            yield lambda: tw.Node(url)
        else:
            nats = stack.enter_context(nats_server())
            yield lambda: tw.Node(nats)


each_end = pytest.mark.parametrize("end", ["stop", "error"])


@asynccontextmanager
async def ending_node(node_of: Callable[[], tw.Node], end: str) -> AsyncIterator[tw.Node]:
    """A node that ends with this block: by its stop, or by an error that leaves its own block."""
    with suppress(ZeroDivisionError):
        async with node_of() as node:
            yield node
            if end == "error":
                raise ZeroDivisionError


async def filled(node: tw.Node, count: int) -> Any:
    stream = await node.stream("orders", subjects=["orders.>"])
    await asyncio.gather(*(stream.publish("orders.made", number) for number in range(count)))
    return stream


async def rest(node: tw.Node, count: int) -> list[int]:
    """The orders that come now, as many as are expected."""
    stream = await node.find_stream("orders")
    billing, seen = await stream.consumer("billing", filter="orders.>", start="all", ack_wait=ACK_WAIT), []
    while len(seen) < count:
        event = await billing.next(timeout=PATIENCE / 4)
        assert event is not None, f"of {count} events {len(seen)} came: the others wait for their ack wait"
        seen.append(event.value)
        await event.ack()
    return seen


@pytest.mark.promise("P17.104")
@every_home
@each_end
async def test_events_that_were_fetched_and_not_begun_are_there_for_the_next_node(
    kind: str, end: str, tmp_path: Path
) -> None:
    async with place(kind, tmp_path) as node_of:
        async with ending_node(node_of, end) as node:
            stream = await filled(node, 60)
            billing = await stream.consumer("billing", filter="orders.>", start="all", ack_wait=ACK_WAIT)
            for _ in range(15):
                await (await anext(billing)).ack()
            if end == "error":
                # The program has released the consumer, and so has its error.
                del billing
        async with node_of() as node:
            assert sorted(await rest(node, 45)) == list(range(15, 60))


@pytest.mark.promise("P17.104")
@every_home
async def test_an_event_that_comes_while_a_node_ends_is_there_for_the_next(kind: str, tmp_path: Path) -> None:
    async with place(kind, tmp_path) as node_of:
        async with node_of() as node:
            await filled(node, 0)
        handled: list[int] = []
        stored: list[int] = []

        async def take(billing: Any) -> None:
            async for event in billing:
                handled.append(event.value)
                await event.ack(wait=True)

        async def publish(stream: Any, number: int) -> None:
            with suppress(tw.TidewireError):
                await stream.publish("orders.made", number)
                stored.append(number)

        for number in range(20):
            async with node_of() as node:
                stream = await node.find_stream("orders")
                billing = await stream.consumer("billing", filter="orders.>", start="all", ack_wait=ACK_WAIT)
                taking = asyncio.ensure_future(take(billing))
                publishing = asyncio.ensure_future(publish(stream, number))
                # The event comes before the end of the node, with it, or after it.
                await asyncio.sleep(number * 0.0002)
            await asyncio.wait({taking, publishing}, timeout=PATIENCE)
            assert taking.done() and publishing.done()
            assert isinstance(taking.exception(), tw.TidewireError)
        async with node_of() as node:
            missing = set(stored) - set(handled)
            assert missing <= set(await rest(node, len(missing))), (
                "no event waits for its ack wait but one that was begun"
            )


@pytest.mark.promise("P17.104")
@every_home
async def test_those_that_wait_for_events_learn_that_their_node_has_ended(kind: str, tmp_path: Path) -> None:
    async with place(kind, tmp_path) as node_of:
        async with node_of() as node:
            stream, bucket = await filled(node, 0), await node.kv("limits")
            waiting = [
                asyncio.ensure_future(anext(one))
                for one in (await stream.consumer("billing"), stream.read(follow=True), bucket.watch())
            ]
            await stream.info()
        ends = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE)
        assert [type(end) for end in ends] == [tw.NodeStopped] * 3, ends


@pytest.mark.promise("P17.104")
@every_home
@each_end
async def test_the_events_of_handlers_that_a_node_interrupts_are_there_for_the_next(
    kind: str, end: str, tmp_path: Path
) -> None:
    async with place(kind, tmp_path) as node_of:
        begun = asyncio.Event()

        class Billing(tw.Service):
            @tw.on("orders.>", durable="billing", start="all", ack_wait=ACK_WAIT)
            async def bill(self, value: int) -> None:
                begun.set()
                await asyncio.Event().wait()

        async with ending_node(node_of, end) as node:
            await filled(node, 20)
            await node.serve(Billing())
            await asyncio.wait_for(begun.wait(), PATIENCE)
            if end == "stop":
                await node.stop(timeout=0.2)
        async with node_of() as node:
            assert sorted(await rest(node, 20)) == list(range(20))
