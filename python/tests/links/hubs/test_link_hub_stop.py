"""Links: a node that is a hub lets the calls that pass through it end before it stops."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any

import pytest
import tidewire as tw
from link_stories import three


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


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[tw.Node, Any, Gate]]:
    """A hub, and the client of what one of its nodes serves for the other."""
    async with three() as (hub, server, caller):
        gate = Gate()
        await server.serve(gate, name="gate")
        yield hub, caller.client("gate"), gate


@pytest.mark.promise("P13.45")
async def test_calls_that_pass_through_end_before_the_hub_does() -> None:
    async with served() as (hub, client, gate):
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
    async with served() as (hub, client, gate):
        stream = client.count()
        assert await anext(stream) == 0
        assert (await asyncio.wait_for(hub.stop(timeout=1_000), 20)).balanced
        with pytest.raises(tw.LinkLost):
            async for _ in stream:
                pass
        await gate.closed.wait()


@pytest.mark.promise("P13.46")
async def test_a_hub_waits_no_longer_than_its_timeout() -> None:
    async with served() as (hub, client, gate):
        call = asyncio.ensure_future(client.wait())
        await gate.begun.wait()
        since = perf_counter()
        await hub.stop(timeout=0.3)
        assert 0.3 <= perf_counter() - since < 10
        with pytest.raises(tw.LinkLost):
            await call
