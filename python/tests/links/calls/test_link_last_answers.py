"""Links: a node that stops stays until its last answers have gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest
import tidewire as tw
from link_processes import Programs
from link_programs import until_served
from link_stories import pattern

MIB = 1 << 20
Config = dict[str, dict[str, int]]
CHUNKS: Config = {"links": {"link_shared_bytes": 0}}
WAYS = pytest.mark.parametrize(
    "config, mib", [({}, 4), ({}, 20), (CHUNKS, 20)], ids=["shared memory", "too long for it", "chunks"]
)


class Last(tw.Service):
    def __init__(self) -> None:
        self.asked, self.leaving = asyncio.Semaphore(0), asyncio.Event()

    @tw.method
    async def give(self, mib: int) -> bytes:
        self.asked.release()
        await self.leaving.wait()
        return pattern(mib * MIB)

    @tw.method
    async def count(self) -> AsyncIterator[int]:
        number = 0
        while True:
            yield number
            number += 1


async def answered(caller: tw.Node, last: Last, stopping: tw.Node, mib: int) -> bool:
    """True if an answer arrives whole although its node, or the hub between, stops."""
    await until_served(caller, "last")
    calls = [asyncio.ensure_future(caller.client("last").give(mib)) for _ in range(3)]
    for _ in calls:
        await last.asked.acquire()
    last.leaving.set()
    await stopping.stop()
    return all(answer == pattern(mib * MIB) for answer in await asyncio.gather(*calls))


@pytest.mark.promise("P13.44")
@WAYS
async def test_of_a_node_that_has_joined(started: Programs, config: Config, mib: int) -> None:
    _, url = started.hub()
    async with (
        tw.Node(url, name="caller", config=config) as caller,
        tw.Node(url, name="server", config=config) as server,
    ):
        last = Last()
        await server.serve(last, name="last")
        assert await answered(caller, last, server, mib)


@WAYS
@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_of_a_node_that_is_the_hub(started: Programs, config: Config, kind: str, mib: int) -> None:
    async with tw.Node(name="server", config=config) as server:
        listening = await server.listen(started.url(kind))
        async with tw.Node(listening.url, name="caller", config=config) as caller:
            last = Last()
            await server.serve(last, name="last")
            assert await answered(caller, last, server, mib)


@pytest.mark.parametrize("config", [{}, CHUNKS], ids=["shared memory", "chunks"])
async def test_last_answers_pass_through_a_hub(started: Programs, config: Config) -> None:
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(tw.Node(name="hub", config=config))
        url = (await hub.listen(started.url("tcp"))).url
        server = await stack.enter_async_context(tw.Node(url, name="server", config=config))
        caller = await stack.enter_async_context(tw.Node(url, name="caller", config=config))
        last = Last()
        await server.serve(last, name="last")
        assert await answered(caller, last, hub, 20)


def test_of_a_node_that_is_stopped_by_a_thread(started: Programs) -> None:
    asked = threading.Event()

    class Blocking(tw.Service):
        @tw.method
        def give(self) -> bytes:
            asked.set()
            return pattern(20 * MIB)

    _, url = started.hub()
    with tw.Node(url, name="caller") as caller, ThreadPoolExecutor(1) as pool:
        with tw.Node(url, name="server") as server:
            server.serve(Blocking(), name="blocking")
            asyncio.run(until_served(caller, "blocking"))
            answer = pool.submit(caller.client("blocking").sync.give)
            asked.wait()
        assert answer.result() == pattern(20 * MIB)
