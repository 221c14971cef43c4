"""Services: streams, out of methods and into them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import tidewire as tw

Run = Callable[[Callable[[tw.Node], Any]], Any]
PATIENCE = 30.0
AHEAD = tw.ServiceConfig().stream_ahead


class Ticks(tw.Service):
    """Streams that count what they wrote, and say when they were closed."""

    def __init__(self) -> None:
        self.written = 0
        self.ahead = threading.Event()
        self.closed = threading.Event()
        self.waiting = threading.Event()

    @tw.method
    async def count(self, most: int = 1_000_000_000) -> AsyncIterator[int]:
        """Count from 0."""
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
    async def total(self, numbers: AsyncIterator[int], add: int = 0) -> int:
        total = add
        async for n in numbers:
            total += n
        return total

    @tw.method
    def total_plainly(self, numbers: Any) -> int:
        return sum(numbers)

    @tw.method
    async def first(self, numbers: AsyncIterator[int]) -> int:
        async for n in numbers:
            return n
        return -1

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


async def soon(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE)


async def set_soon(event: threading.Event) -> bool:
    return await asyncio.to_thread(event.wait, PATIENCE)


@BOTH
def test_an_infinite_stream_starts_at_once_and_ends_early(run: Run, count: str) -> None:
    async def story(node: tw.Node) -> None:
        ticks = Ticks()
        served = node.serve(ticks)
        seen = []
        async for n in getattr(node.client(Ticks), count)():
            seen.append(n)
            if n == 1_000:
                break
        assert seen == list(range(1_001))
        assert await set_soon(ticks.closed), "a stream that nobody holds is closed"
        assert ticks.written <= 1_001 + AHEAD
        await soon(served.stop())
        assert (served.statistics()["in_flight"], served.statistics()["cancelled"]) == (0, 1)

    run(story)


@BOTH
def test_a_slow_reader_stops_the_writer(run: Run, count: str) -> None:
    async def story(node: tw.Node) -> None:
        ticks = Ticks()
        node.serve(ticks)
        stream = getattr(node.client(Ticks), count)()
        assert await anext(stream) == 0
        assert await set_soon(ticks.ahead)
        # The writer has stopped; another service call goes through the same loop and threads
        # meanwhile.
        assert await node.client(Ticks).wait_after(1).__anext__() == 0
        assert ticks.written <= 1 + AHEAD
        assert [await anext(stream) for _ in range(3 * AHEAD)] == list(range(1, 1 + 3 * AHEAD))
        assert ticks.written <= 1 + 4 * AHEAD
        await stream.aclose()
        assert ticks.closed.is_set(), "aclose has waited for it"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(story)


@BOTH
def test_a_finite_stream_gives_all_its_items_and_ends(run: Run, count: str) -> None:
    async def story(node: tw.Node) -> None:
        served = node.serve(Ticks())
        ticks = node.client(Ticks)
        for most in (0, 1, AHEAD - 1, AHEAD, AHEAD + 1, 10 * AHEAD):
            assert [n async for n in getattr(ticks, count)(most)] == list(range(most))
        assert served.statistics()["streams"] == 6

    run(story)


@pytest.mark.parametrize("name", ["fail_after", "fail_plainly_after"])
def test_an_error_arrives_after_the_items_before_it(run: Run, name: str) -> None:
    async def story(node: tw.Node) -> None:
        served = node.serve(Ticks())
        for most in (0, 1, AHEAD, 3 * AHEAD):
            stream, seen = getattr(node.client(Ticks), name)(most), []
            with pytest.raises(KeyError, match=str(most)):
                async for n in stream:
                    seen.append(n)
            assert seen == list(range(most))
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        assert served.statistics()["errors"] == 4

    run(story)


@pytest.mark.promise("P13.33")
def test_closing_reaches_a_generator_that_waits(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        ticks = Ticks()
        node.serve(ticks)
        async with node.client("ticks").wait_after(2) as stream:
            assert [await anext(stream), await anext(stream)] == [0, 1]
            assert await set_soon(ticks.waiting)
        assert ticks.closed.is_set()

    run(story)


def test_a_reader_that_is_cancelled_may_read_on(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        release = asyncio.Event()

        async def held() -> AsyncIterator[int]:
            yield 0
            await release.wait()
            yield 1

        node.serve({"held": held}, name="slow")
        stream = node.client("slow").held()
        assert await anext(stream) == 0
        reader = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.wait([reader])
        release.set()
        assert [n async for n in stream] == [1], "what was not read is not lost"

    run(story)


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


def test_a_stream_has_the_time_it_was_given(run: Run) -> None:
    async def story(node: tw.Node) -> None:
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

    run(story)


def test_a_stream_whose_time_is_up_is_closed_although_nobody_reads(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        ticks = Ticks()
        node.serve(ticks)
        stream = node.client(Ticks).with_(timeout=0.05).wait_after(3)
        assert await anext(stream) == 0
        assert await set_soon(ticks.closed)
        assert [await anext(stream), await anext(stream)] == [1, 2]
        with pytest.raises(tw.AskTimeout):
            await anext(stream)

    run(story)


def test_streams_whose_readers_are_slow_hold_no_thread(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        node.serve(Ticks())
        calls = node.client(Ticks)
        streams = [calls.count_plainly() for _ in range(300)]
        for stream in streams:
            assert await soon(anext(stream)) == 0
        assert await soon(calls.total_plainly([1, 2])) == 3
        for stream in streams:
            assert await soon(anext(stream)) == 1
        await soon(asyncio.gather(*(stream.aclose() for stream in streams)))

    run(story)


def test_two_thousand_streams_at_once(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        served = node.serve(Ticks())
        calls = node.client(Ticks)
        streams = [calls.count() for _ in range(2_000)]
        for n in range(3):
            assert await soon(asyncio.gather(*(anext(stream) for stream in streams))) == [n] * 2_000
        assert served.statistics()["in_flight"] == 2_000
        del streams
        gc.collect()
        await soon(served.stop())
        assert (served.statistics()["in_flight"], served.statistics()["cancelled"]) == (0, 2_000)

    run(story)


# Streams into methods


def test_an_async_generator_as_an_argument_is_a_stream(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        closed: list[str] = []

        async def numbers(most: int) -> AsyncIterator[int]:
            try:
                for n in range(most):
                    yield n
            finally:
                closed.append("closed")

        node.serve(Ticks())
        calls = node.client(Ticks)
        assert await calls.total(numbers(1_000)) == 499_500
        assert await calls.total(add=1, numbers=numbers(10)) == 46
        assert await node.client("ticks").total_plainly(numbers(1_000)) == 499_500
        assert await calls.first(numbers(1_000_000_000)) == 0
        assert closed == ["closed"] * 4, "the generator is closed when the call is over"
        assert [n async for n in calls.doubled(numbers(100))] == [2 * n for n in range(100)]
        async with calls.doubled(numbers(1_000_000_000)) as stream:  # type: ignore[attr-defined]
            assert await anext(stream) == 0
        assert closed == ["closed"] * 6

    run(story)


def test_an_error_of_an_argument_reaches_the_callee(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        async def numbers() -> AsyncIterator[int]:
            yield 1
            raise LookupError("no more")

        node.serve(Ticks())
        with pytest.raises(LookupError, match="no more"):
            await node.client(Ticks).total(numbers())

    run(story)


def test_a_generator_lives_on_the_loop_of_its_caller(run: Run) -> None:
    async def story(node: tw.Node) -> None:
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

    run(story)


def test_a_caller_that_goes_closes_its_generator(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        begun, closed = asyncio.Event(), asyncio.Event()

        async def numbers() -> AsyncIterator[int]:
            try:
                begun.set()
                yield 1
                await asyncio.Event().wait()
            finally:
                closed.set()

        node.serve(Ticks())
        task = asyncio.create_task(node.client(Ticks).total(numbers()))
        await soon(begun.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await soon(closed.wait())

    run(story)


# The end


@BOTH
def test_streams_are_cut_when_their_instance_stops(run: Run, count: str) -> None:
    async def story(node: tw.Node) -> None:
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

    run(story)


@BOTH
def test_infinite_streams_do_not_hold_a_node_up(count: str) -> None:
    async def main() -> None:
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

    asyncio.run(main())


# Misuse


def test_streams_and_values_are_not_confused(run: Run) -> None:
    async def story(node: tw.Node) -> None:
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

    run(story)


def test_an_async_generator_needs_a_loop(node: tw.Node) -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    node.serve(Ticks())
    with pytest.raises(tw.InvalidArgument, match="needs an event loop"):
        node.client(Ticks).sync.total(numbers())


def test_a_method_that_promises_a_stream_gives_one(run: Run) -> None:
    async def nothing() -> AsyncIterator[int]:  # type: ignore[empty-body]
        ...

    async def made() -> AsyncIterator[int]:
        async def inner() -> AsyncIterator[int]:
            yield 1

        return inner()

    async def story(node: tw.Node) -> None:
        node.serve({"nothing": nothing, "made": made}, name="odd")
        assert [n async for n in node.client("odd").made()] == [1]
        with pytest.raises(tw.InvalidArgument, match="gave a NoneType, and its annotation promises a stream"):
            await anext(node.client("odd").nothing())

    run(story)
