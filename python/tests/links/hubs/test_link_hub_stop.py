"""Links: a node that is a hub lets the calls that pass through it end before it stops."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from time import perf_counter

import pytest
import tidewire as tw


class Gate(tw.Service):
    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.closed = asyncio.Event()

    @tw.method
    async def wait(self) -> str:
        self.begun.set()
        await self.open.wait()
        return "through"

    @tw.method
    async def count(self) -> AsyncIterator[int]:
        try:
            for number in itertools.count():
                yield number
        finally:
            self.closed.set()


async def three(stack: AsyncExitStack) -> tuple[tw.Node, tw.Node, Gate]:
    """A hub, a caller and what another node serves."""
    hub = await stack.enter_async_context(tw.Node(name="hub"))
    url, gate = hub.listen("tide://127.0.0.1:0").url, Gate()
    server = await stack.enter_async_context(tw.Node(url, name="server"))
    await server.serve(gate, name="gate")
    return hub, await stack.enter_async_context(tw.Node(url, name="caller")), gate


@pytest.mark.promise("P13.45")
async def test_calls_that_pass_through_end_before_the_hub_does() -> None:
    async with AsyncExitStack() as stack:
        hub, caller, gate = await three(stack)
        client = caller.client("gate")
        call = asyncio.ensure_future(client.wait())
        await gate.begun.wait()
        stopping = asyncio.ensure_future(hub.stop(timeout=20))
        # From its first step on the hub takes no new calls.
        await asyncio.sleep(0)
        for refused in (client.wait, client.with_(headers={"a": "b"}).wait):
            with pytest.raises(tw.NodeStopped, match="the hub is stopping, and takes no new calls") as raised:
                await refused()
            assert raised.value.retryable
        with pytest.raises(tw.NodeStopped, match="the hub is stopping"):
            await asyncio.to_thread(client.sync.wait)
        assert not stopping.done()
        gate.open.set()
        assert await call == "through"
        assert (await stopping).balanced


@pytest.mark.promise("P13.47")
async def test_a_hub_does_not_wait_for_streams_and_their_readers_are_told() -> None:
    async with AsyncExitStack() as stack:
        hub, caller, gate = await three(stack)
        stream = caller.client("gate").count()
        assert await anext(stream) == 0
        assert (await asyncio.wait_for(hub.stop(timeout=1_000), 20)).balanced
        with pytest.raises(tw.LinkLost):
            async for _ in stream:
                pass
        await gate.closed.wait()


@pytest.mark.promise("P13.46")
async def test_a_hub_waits_no_longer_than_its_timeout() -> None:
    async with AsyncExitStack() as stack:
        hub, caller, gate = await three(stack)
        call = asyncio.ensure_future(caller.client("gate").wait())
        await gate.begun.wait()
        since = perf_counter()
        await hub.stop(timeout=0.3)
        assert 0.3 <= perf_counter() - since < 10
        with pytest.raises(tw.LinkLost):
            await call
