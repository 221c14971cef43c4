"""Streams that are left before their end: what their generators see of it, and who waits for that,
here and over a link.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import tidewire as tw
from link_stories import PATIENCE_S, three

PLACES = pytest.mark.parametrize("place", ["here", "over a link", "to the hub", "from the hub"])


class Tape(tw.Service):
    """Gives streams, and notes what becomes of their generators."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.at_the_end = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.ended = threading.Event()

    @tw.method
    async def count(self, most: int) -> AsyncIterator[int]:
        try:
            for n in range(most):
                yield n
        finally:
            await self._end()

    @tw.method
    async def wait(self) -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            await self._end()

    @tw.method
    def plainly(self, most: int) -> Iterator[int]:
        try:
            yield from range(most)
        finally:
            self.notes.append("closed")

    @tw.method
    async def fails(self) -> AsyncIterator[int]:
        try:
            yield 0
            yield 1
        finally:
            self.notes.append("closed")
            raise ValueError("at its end")

    @tw.method
    async def read(self, items: AsyncIterator[int], most: int) -> list[int]:
        seen: list[int] = []
        async for item in items:
            seen.append(item)
            if len(seen) == most:
                await items.aclose()  # type: ignore[attr-defined]
                self.notes.append("left")
                break
        return seen

    async def _end(self) -> None:
        """Close something, as a generator does that holds a connection."""
        try:
            self.at_the_end.set()
            await self.may_end.wait()
            await asyncio.sleep(0.01)
            self.notes.append("closed")
        except asyncio.CancelledError:
            self.notes.append("interrupted")
            raise
        finally:
            self.ended.set()


@contextlib.asynccontextmanager
async def at(place: str) -> AsyncIterator[tuple[Any, Tape]]:
    """A client of a service, and that service."""
    async with three() as (hub, a, b):
        tape = Tape()
        server, reader = {"over a link": (a, b), "to the hub": (a, hub), "from the hub": (hub, b)}.get(place, (a, a))
        await server.serve(tape, name="tape")
        await reader.until(lambda now: "tape" in now["links"]["services"] or server is reader, timeout=PATIENCE_S)
        yield reader.client("tape"), tape


async def ended(tape: Tape) -> None:
    assert await asyncio.to_thread(tape.ended.wait, PATIENCE_S)


@pytest.mark.promise("P13.36")
@PLACES
@pytest.mark.parametrize("method", ["count", "wait"])
async def test_an_async_for_that_is_cancelled_ends_the_generator_though_its_task_is_kept(
    place: str, method: str
) -> None:
    async with at(place) as (tape, service):
        reading = asyncio.Event()

        async def read(stream: AsyncIterator[int]) -> None:
            async for _ in stream:
                reading.set()

        stream = tape.count(1_000_000_000) if method == "count" else tape.wait()
        task = asyncio.create_task(read(stream))
        await reading.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as kept:
            await task
        await ended(service)
        assert service.notes == ["closed"]
        del kept, task, stream


@pytest.mark.promise("P13.37")
@PLACES
async def test_a_single_read_that_is_cancelled_does_not_end_the_stream(place: str) -> None:
    async with at(place) as (tape, service):
        stream = tape.wait()
        assert await anext(stream) == 0
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(stream), 0.01)
        assert service.notes == []
        await stream.aclose()
        assert service.notes == ["closed"]


@PLACES
async def test_a_read_gets_its_item_although_nobody_else_holds_the_stream(place: str) -> None:
    async with at(place) as (tape, service):
        assert await anext(tape.count(1_000)) == 0
        await ended(service)
        assert service.notes == ["closed"]


@PLACES
async def test_a_stream_that_is_closed_before_its_first_read_is_not_opened(place: str) -> None:
    async with at(place) as (tape, service):
        closed = tape.count(1)
        await closed.aclose()
        assert [item async for item in closed] == []
        assert [item async for item in tape.count(1)] == [0]
        assert service.notes == ["closed"]


@pytest.mark.promise("P13.33", "P13.34", "P13.35")
@PLACES
@pytest.mark.parametrize("method", ["count", "wait"])
async def test_closing_waits_for_what_the_generator_does_at_its_end(place: str, method: str) -> None:
    async with at(place) as (tape, service):
        service.may_end.clear()
        stream = tape.count(1_000) if method == "count" else tape.wait()
        assert await anext(stream) == 0
        closing = asyncio.create_task(stream.aclose())
        await service.at_the_end.wait()
        assert not closing.done() and service.notes == []
        service.may_end.set()
        await closing
        assert service.notes == ["closed"]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        await stream.aclose()


@pytest.mark.promise("P13.35")
@PLACES
async def test_the_end_of_async_with_waits_for_plain_generators_and_for_those_that_fail(place: str) -> None:
    async with at(place) as (tape, service):
        async with tape.plainly(1_000) as stream:
            assert await anext(stream) == 0
        assert service.notes == ["closed"]
        async with tape.fails() as stream:
            assert await anext(stream) == 0
        assert service.notes == ["closed", "closed"]
        # One that has ended by itself, and one that nobody has read.
        stream = tape.plainly(2)
        assert [n async for n in stream] == [0, 1]
        await stream.aclose()
        await tape.plainly(2).aclose()
        assert service.notes == ["closed"] * 3


@pytest.mark.promise("P13.35")
@PLACES
async def test_a_plain_thread_waits_as_well(place: str) -> None:
    async with at(place) as (tape, service):

        def read() -> list[str]:
            with tape.sync.wait() as stream:
                assert next(stream) == 0
            return list(service.notes)

        assert await asyncio.to_thread(read) == ["closed"]


@PLACES
async def test_closing_that_is_cancelled_leaves_the_generator_to_itself(place: str) -> None:
    async with at(place) as (tape, service):
        service.may_end.clear()
        stream = tape.wait()
        assert await anext(stream) == 0
        closing = asyncio.create_task(stream.aclose())
        await service.at_the_end.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        del stream
        service.may_end.set()
        await ended(service)
        assert service.notes == ["closed"]


@PLACES
async def test_a_generator_that_was_given_is_closed_in_its_own_time(place: str) -> None:
    async with at(place) as (tape, service):
        mine = Tape()
        assert await tape.read(mine.count(1_000_000), 3) == [0, 1, 2]
        assert mine.notes == ["closed"] and service.notes == ["left"]
        # One that is at work when it is left.
        mine = Tape()
        assert await tape.read(mine.wait(), 1) == [0]
        assert mine.notes == ["closed"]


@pytest.mark.promise("P13.38")
@PLACES
@pytest.mark.parametrize("count", [0, 1, 100])
async def test_several_tasks_read_one_stream_to_its_end(place: str, count: int) -> None:
    async with at(place) as (tape, _):
        stream, seen = tape.count(count), []

        async def read() -> None:
            async for n in stream:
                seen.append(n)
                await asyncio.sleep(0)

        await asyncio.wait_for(asyncio.gather(*(read() for _ in range(5))), PATIENCE_S)
        assert sorted(seen) == list(range(count))


@pytest.mark.promise("P13.38")
@PLACES
async def test_one_of_several_readers_gets_the_error(place: str) -> None:
    async with at(place) as (tape, _):
        stream = tape.fails()

        async def read() -> None:
            async for _ in stream:
                await asyncio.sleep(0)

        ends = await asyncio.wait_for(asyncio.gather(*(read() for _ in range(4)), return_exceptions=True), PATIENCE_S)
        assert sorted(type(end).__name__ for end in ends) == ["NoneType"] * 3 + ["ValueError"]


async def test_a_method_that_nobody_has_heard_of_yet_can_be_read_in_every_way() -> None:
    async with three() as (_, a, b):
        tapes = [Tape() for _ in range(5)]
        calls = [getattr(b.client(f"tape-{n}"), "plainly" if n else "count")(3) for n in range(5)]
        for n, tape in enumerate(tapes):
            await a.serve(tape, name=f"tape-{n}")
        assert [n async for n in calls[0]] == [0, 1, 2]
        assert await anext(calls[1]) == 0
        await calls[1].aclose()
        async with calls[2] as stream:
            assert [n async for n in stream] == [0, 1, 2]
        async with contextlib.aclosing(calls[3]) as stream:
            assert await anext(stream) == 0
        with pytest.raises(tw.InvalidArgument, match=r"a stream.* rather than await it"):
            await calls[4]
        assert tapes[1].notes == tapes[2].notes == tapes[3].notes == ["closed"]

        blocking = b.client("tape-late")
        await a.serve(Tape(), name="tape-late")
        assert await asyncio.to_thread(lambda: list(blocking.sync.plainly(3))) == [0, 1, 2]
