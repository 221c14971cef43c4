"""Links: a node that stops stays until its last answers have gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import numpy as np
import pytest
import tidewire as tw
from link_frames import CALL, FAIL, ID, PING, PONG, Raw, called, frame
from link_processes import PATIENCE_S, Programs
from link_programs import until_served
from link_stories import logged
from tidewire.values import encode

MIB = 1 << 20
# The number of a PING that only says that somebody is there.
HEARTBEAT = 1
Config = dict[str, dict[str, int]]
CHUNKS: Config = {"links": {"link_shared_bytes": 0}}
WAYS = pytest.mark.parametrize(
    "config, mib", [({}, 4), ({}, 20), (CHUNKS, 20)], ids=["shared memory", "too long for it", "chunks"]
)


def pattern(length: int) -> bytes:
    """Bytes of which no two pages are alike."""
    return np.arange(length // 4, dtype=np.uint32).tobytes()


class Last(tw.Service):
    """Answers when it is told to."""

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


@pytest.mark.promise("P13.46")
async def test_a_hub_stays_until_its_nodes_say_that_they_have_read_what_was_sent() -> None:
    def until_asked(raw: Raw) -> int:
        while (found := raw.receive()) is not None:
            kind, number, *_ = found
            if kind == PING and number != HEARTBEAT:
                return number
        raise AssertionError("the hub has closed the link, and what the node has not read may be lost")

    node = tw.Node(name="hub")
    raw = await asyncio.to_thread(Raw.joined, node.listen("tide://127.0.0.1:0").url)
    stopping = asyncio.create_task(node.stop(timeout=PATIENCE_S))
    asked = await asyncio.to_thread(until_asked, raw)
    assert not stopping.done()
    raw.send(frame(PONG, id=asked, flags=0))
    await asyncio.wait_for(stopping, PATIENCE_S / 2)
    raw.close()


def test_an_answer_beyond_the_capacity_fails_its_call_alone() -> None:
    class Store(tw.Service):
        @tw.method
        async def load(self) -> bytes:
            return bytes(700_000)

    def refused(url: str) -> str:
        raw = Raw.joined(url)
        for slot in range(12):
            # Nothing of the answers is asked for, so that they wait where they are given.
            raw.send(frame(CALL, called(b"svc.store.load", deadline_ms=0), encode(()), id=ID | slot))
        while (came := raw.receive()) is not None and came[0] != FAIL:
            pass
        raw.close()
        assert came is not None
        return came[3].decode()

    async def story() -> None:
        config = {"links": {"link_queue_bytes": 1_048_576}}
        async with tw.Node(name="hub") as hub:
            url = hub.listen("tide://127.0.0.1:0").url
            async with tw.Node(url, name="server", config=config) as server:
                await server.serve(Store(), name="store")
                assert (await asyncio.to_thread(refused, url)).startswith("link_queue_bytes: ")
                # Others are answered.
                async with tw.Node(url, name="caller") as caller:
                    await until_served(caller, "store")
                    assert len(await caller.client("store").load()) == 700_000

    with logged() as lines:
        asyncio.run(story())
    assert lines.empty(), lines.get()
