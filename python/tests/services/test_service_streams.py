"""Services: streams, out of methods and into them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import tidewire as tw
from in_loop import InLoop
from service_support import PATIENCE, soon

AHEAD = tw.ServiceConfig().stream_ahead
MOST_AHEAD = {True: AHEAD, False: 2 * (AHEAD + tw.LinkConfig().stream_credit)}
"""Items that a writer is ahead of a reader in the same node, or in another one."""


class Ticks(tw.Service):
    """Streams that count what they wrote, and say when they were closed."""

    def __init__(self) -> None:
        self.written = 0
        self.ahead = threading.Event()
        self.closed = threading.Event()
        self.waiting = threading.Event()

    @tw.method
    async def count(self, most: int = 1_000_000_000) -> AsyncIterator[int]:
        try:
            for n in range(most):
                self._write()
                yield n
        finally:
            self.closed.set()

    @tw.method
    def count_plainly(self, most: int = 1_000_000_000) -> Iterator[int]:
        try:
            for n in range(most):
                self._write()
                yield n
        finally:
            self.closed.set()

    def _write(self) -> None:
        self.written += 1
        if self.written == AHEAD:
            self.ahead.set()

    @tw.method
    async def wait_after(self, most: int) -> AsyncIterator[int]:
        try:
            for n in range(most):
                yield n
            self.waiting.set()
            await asyncio.Event().wait()
        finally:
            self.closed.set()

    @tw.method
    async def fail_after(self, most: int) -> AsyncIterator[int]:
        for n in range(most):
            yield n
        raise KeyError(most)

    @tw.method
    def fail_plainly_after(self, most: int) -> Iterator[int]:
        yield from range(most)
        raise KeyError(most)

    @tw.method
    async def total(self, numbers: AsyncIterator[int]) -> int:
        total = 0
        async for n in numbers:
            total += n
        return total

    @tw.method
    def total_plainly(self, numbers: Any) -> int:
        return sum(numbers)

    @tw.method
    async def doubled(self, numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for n in numbers:
            yield 2 * n

    @tw.method
    async def seen(self, call: tw.CallContext) -> AsyncIterator[Any]:
        yield call.method
        yield tw.context().remaining
        yield tw.context().trace == call.trace

    @tw.method
    def seen_plainly(self) -> Iterator[Any]:
        for _ in range(3 * AHEAD):
            yield tw.context().method


BOTH = pytest.mark.parametrize("count", ["count", "count_plainly"])


@asynccontextmanager
async def _pair(place: str) -> AsyncIterator[tuple[tw.Node, tw.Node]]:
    async with tw.Node(name="server") as node:
        if place == "here":
            yield node, node
            return
        async with tw.Node(node.listen("tide://127.0.0.1:0").url, name="caller") as caller:
            yield node, caller


@pytest.fixture(params=["here", "over a link"])
def pair(request: pytest.FixtureRequest) -> InLoop:
    """A node that serves and one that calls, or one node that does both."""
    return InLoop(_pair(request.param))


async def set_soon(event: threading.Event) -> bool:
    return await asyncio.to_thread(event.wait, PATIENCE)


@BOTH
async def test_an_infinite_stream_starts_at_once_and_ends_early(pair: tuple[tw.Node, tw.Node], count: str) -> None:
    node, caller = pair
    ticks = Ticks()
    served = await node.serve(ticks)
    seen = []
    async for n in getattr(caller.client(Ticks), count)():
        seen.append(n)
        if n == 1_000:
            break
    assert seen == list(range(1_001))
    assert await set_soon(ticks.closed), "a stream that nobody holds is closed"
    assert ticks.written <= 1_001 + MOST_AHEAD[node is caller]
    await soon(served.stop())
    assert (served.statistics()["in_flight"], served.statistics()["cancelled"]) == (0, 1)


@BOTH
async def test_a_slow_reader_stops_the_writer(pair: tuple[tw.Node, tw.Node], count: str) -> None:
    node, caller = pair
    ticks = Ticks()
    await node.serve(ticks)
    stream = getattr(caller.client(Ticks), count)()
    assert await anext(stream) == 0
    assert await set_soon(ticks.ahead)
    # The writer has stopped; another service call goes through the same loop and threads
    # meanwhile.
    assert await caller.client(Ticks).wait_after(1).__anext__() == 0
    assert ticks.written <= 1 + MOST_AHEAD[node is caller]
    assert [await anext(stream) for _ in range(3 * AHEAD)] == list(range(1, 1 + 3 * AHEAD))
    assert ticks.written <= 1 + 3 * AHEAD + MOST_AHEAD[node is caller]
    await stream.aclose()
    assert ticks.closed.is_set(), "aclose has waited for it"
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


@BOTH
async def test_a_finite_stream_gives_all_its_items_and_ends(pair: tuple[tw.Node, tw.Node], count: str) -> None:
    node, caller = pair
    served = await node.serve(Ticks())
    ticks = caller.client(Ticks)
    for most in (0, 1, AHEAD - 1, AHEAD, AHEAD + 1, 10 * AHEAD):
        assert [n async for n in getattr(ticks, count)(most)] == list(range(most))
    assert served.statistics()["streams"] == 6


@pytest.mark.parametrize("name", ["fail_after", "fail_plainly_after"])
async def test_an_error_arrives_after_the_items_before_it(pair: tuple[tw.Node, tw.Node], name: str) -> None:
    node, caller = pair
    served = await node.serve(Ticks())
    for most in (0, 1, AHEAD, 3 * AHEAD):
        stream, seen = getattr(caller.client(Ticks), name)(most), []
        with pytest.raises(KeyError, match=str(most)):
            async for n in stream:
                seen.append(n)
        assert seen == list(range(most))
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert served.statistics()["errors"] == 4


async def test_a_reader_that_is_cancelled_may_read_on(pair: tuple[tw.Node, tw.Node]) -> None:
    node, caller = pair
    release = asyncio.Event()

    async def held() -> AsyncIterator[int]:
        yield 0
        await release.wait()
        yield 1

    await node.serve({"held": held}, name="slow")
    stream = caller.client("slow").held()
    assert await anext(stream) == 0
    reader = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait([reader])
    release.set()
    assert [n async for n in stream] == [1], "what was not read is not lost"


def test_plain_threads_read_streams(node: tw.Node) -> None:
    ticks = Ticks()
    served = node.serve(ticks)
    calls = node.client(Ticks).sync
    assert list(calls.count(100)) == list(calls.count_plainly(100)) == list(range(100))
    with calls.count() as stream:
        assert [next(stream) for _ in range(50)] == list(range(50))
    assert ticks.closed.is_set()
    with pytest.raises(KeyError):
        list(calls.fail_after(3))
    with pytest.raises(StopIteration):
        next(stream)
    assert served.sync.stop().balanced


async def test_a_stream_has_the_time_it_was_given(node: tw.Node) -> None:
    ticks = Ticks()
    node.serve(ticks)
    calls = node.client(Ticks)
    assert [value async for value in calls.seen()] == ["seen", None, True], "it has no deadline of its own"
    seen = []
    with pytest.raises(tw.AskTimeout, match=r"ticks\.wait_after: the stream's time is up"):
        async for n in calls.with_(timeout=0.05).wait_after(3):
            seen.append(n)
    assert seen == [0, 1, 2]
    assert await set_soon(ticks.closed)
    with pytest.raises(tw.AskTimeout):
        async for _ in calls.with_(timeout=0.05).count_plainly():
            pass
    assert [name async for name in calls.seen_plainly()] == ["seen_plainly"] * 3 * AHEAD


async def test_a_stream_whose_time_is_up_is_closed_although_nobody_reads(node: tw.Node) -> None:
    ticks = Ticks()
    node.serve(ticks)
    stream = node.client(Ticks).with_(timeout=0.05).wait_after(3)
    assert await anext(stream) == 0
    assert await set_soon(ticks.closed)
    assert [await anext(stream), await anext(stream)] == [1, 2]
    with pytest.raises(tw.AskTimeout):
        await anext(stream)


async def test_streams_whose_readers_are_slow_hold_no_thread(node: tw.Node) -> None:
    node.serve(Ticks())
    calls = node.client(Ticks)
    streams = [calls.count_plainly() for _ in range(300)]
    for stream in streams:
        assert await soon(anext(stream)) == 0
    assert await soon(calls.total_plainly([1, 2])) == 3
    for stream in streams:
        assert await soon(anext(stream)) == 1
    await soon(asyncio.gather(*(stream.aclose() for stream in streams)))


# Streams into methods


async def test_a_generator_lives_on_the_loop_of_its_caller(node: tw.Node) -> None:
    node.serve(Ticks())
    calls = node.client(Ticks)
    there: list[Any] = []

    async def numbers() -> AsyncIterator[int]:
        for n in range(200):
            there.append(asyncio.get_running_loop())
            yield n

    async def elsewhere() -> tuple[int, list[int], bool]:
        total = await calls.total(numbers())
        seen = [n async for n in calls.doubled(numbers())]
        return total, seen, set(there) == {asyncio.get_running_loop()}

    total, seen, same = await soon(asyncio.to_thread(asyncio.run, elsewhere()))
    assert (total, seen, same) == (19_900, [2 * n for n in range(200)], True)


# The end


@BOTH
async def test_streams_are_cut_when_their_instance_stops(node: tw.Node, count: str) -> None:
    ticks = Ticks()
    served = node.serve(ticks)
    stream = getattr(node.client(Ticks), count)()
    assert await anext(stream) == 0
    assert await set_soon(ticks.ahead)
    assert (await soon(served.stop())).balanced
    assert await set_soon(ticks.closed), "also where nobody reads on"
    with pytest.raises(tw.ActorStopped, match="is stopping"):
        async for _ in stream:
            pass


@BOTH
async def test_infinite_streams_do_not_hold_a_node_up(count: str) -> None:
    ticks = Ticks()
    async with tw.Node() as node:
        node.serve(ticks)
        stream = getattr(node.client(Ticks), count)()
        assert await anext(stream) == 0
        ledger = await soon(node.stop(timeout=None))
    assert ledger.balanced
    with pytest.raises(tw.NodeStopped, match="its node is stopping"):
        async for _ in stream:
            pass
    assert await set_soon(ticks.closed)


# Misuse


async def test_streams_and_values_are_not_confused(node: tw.Node) -> None:
    node.serve(Ticks())
    for calls in (node.client(Ticks), node.client("ticks")):
        with pytest.raises(tw.InvalidArgument, match=r"ticks\.count is a stream: read it with `async for`"):
            await calls.count()  # type: ignore[misc]
        with pytest.raises(tw.InvalidArgument, match="total_plainly gives one value: await it"):
            async for _ in calls.total_plainly([1]):  # type: ignore[attr-defined]
                pass
        with pytest.raises(tw.InvalidArgument, match="policy: 'all' is not allowed for a stream"):
            await anext(calls.with_(policy="all").count())
    with pytest.raises(tw.InvalidArgument, match="give AsyncIterator"):
        await node.client("ticks").total(12)
    assert await node.client("ticks").total([1, 2]) == 3


def test_an_async_generator_needs_a_loop(node: tw.Node) -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    node.serve(Ticks())
    with pytest.raises(tw.InvalidArgument, match="needs an event loop"):
        node.client(Ticks).sync.total(numbers())


async def test_a_method_that_promises_a_stream_gives_one(node: tw.Node) -> None:
    async def nothing() -> AsyncIterator[int]:  # type: ignore[empty-body]
        ...

    async def made() -> AsyncIterator[int]:
        async def inner() -> AsyncIterator[int]:
            yield 1

        return inner()

    node.serve({"nothing": nothing, "made": made}, name="odd")
    assert [n async for n in node.client("odd").made()] == [1]
    with pytest.raises(tw.InvalidArgument, match="gave a NoneType, and its annotation promises a stream"):
        await anext(node.client("odd").nothing())
