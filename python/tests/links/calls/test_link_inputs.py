"""Links: generators as arguments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import tidewire as tw
from remote_support import desk_nodes, let_go

LEAST_AHEAD = tw.ServiceConfig().stream_ahead
MOST_AHEAD = 2 * (LEAST_AHEAD + tw.LinkConfig().stream_credit)


@dataclass
class Point:
    x: int
    y: int


class Desk(tw.Service):
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.errors: list[BaseException] = []
        self.failed = asyncio.Event()
        self.reading = asyncio.Event()
        self.go_on = asyncio.Event()

    @tw.method
    async def total(self, numbers: AsyncIterator[int]) -> int:
        return sum([number async for number in numbers])

    @tw.method
    def total_plainly(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    @tw.method
    async def both(self, one: AsyncIterator[int], other: AsyncIterator[int]) -> list[int]:
        """Read the second to its end before the first."""
        second = [number async for number in other]
        return [len(second), *[number async for number in one]][:5]

    @tw.method
    async def first(self, numbers: AsyncIterator[int], most: int) -> list[int]:
        found = []
        async for number in numbers:
            found.append(number)
            if len(found) == most:
                break
        return found

    @tw.method
    async def close_early(self, numbers: Any) -> int:
        found = await anext(numbers)
        await numbers.aclose()
        self.reading.set()
        await self.go_on.wait()
        return int(found)

    @tw.method
    async def keep_reading(self, numbers: AsyncIterator[int]) -> None:
        try:
            async for number in numbers:
                self.seen.append(number)
                self.reading.set()
        except BaseException as error:
            self.errors.append(error)
            self.failed.set()
            raise

    @tw.method
    async def one_and_wait(self, numbers: AsyncIterator[int]) -> None:
        await anext(numbers)
        self.reading.set()
        await self.go_on.wait()

    @tw.method
    async def leave(self, numbers: AsyncIterator[int]) -> None:
        self.task = asyncio.ensure_future(self.keep_reading(numbers))
        await self.reading.wait()

    @tw.method
    async def points(self, points: AsyncIterator[Point]) -> list[int]:
        return [point.x + point.y async for point in points]

    @tw.method
    async def doubled(self, numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for number in numbers:
            yield 2 * number

    @tw.method
    async def forget(self, numbers: AsyncIterator[int]) -> int:
        return 7


class Source:
    """Generators that note what became of them."""

    def __init__(self) -> None:
        self.written = 0
        self.ahead = asyncio.Event()
        self.closed = asyncio.Event()

    async def count(self, most: int, error: Exception | None = None) -> AsyncIterator[int]:
        try:
            for number in range(most):
                self.written = number + 1
                if self.written == LEAST_AHEAD:
                    self.ahead.set()
                yield number
            if error is not None:
                raise error
        finally:
            self.closed.set()


ENDLESS = 1_000_000_000
WHERE = pytest.mark.parametrize("where", ["server", "caller"])


@pytest.mark.promise("P13.39")
@WHERE
async def test_items_come_in_order_and_to_the_end(where: str) -> None:
    async with desk_nodes(Desk()) as world:
        desk, source = getattr(world, where).client("desk"), Source()
        assert await desk.total(source.count(10_000)) == sum(range(10_000))
        assert source.closed.is_set()
        assert await desk.first(Source().count(500), 500) == list(range(500))
        assert await desk.total(Source().count(0)) == 0
        assert await desk.total(numbers=Source().count(3)) == 3
        await let_go(world.caller, world.server)


async def test_a_plain_iterable_is_a_stream_too() -> None:
    async with desk_nodes(Desk()) as world:
        desk: Any = world.caller.client(Desk, "desk")
        for numbers in (iter([1, 2, 3]), (n for n in [1, 2, 3]), [1, 2, 3]):
            assert await desk.total(numbers) == 6


async def test_a_plain_method_reads_a_stream_in_its_thread() -> None:
    async with desk_nodes(Desk()) as world:
        assert await world.caller.client("desk").total_plainly(Source().count(1_000)) == sum(range(1_000))


@pytest.mark.promise("P13.40")
async def test_two_streams_do_not_wait_for_each_other() -> None:
    async with desk_nodes(Desk()) as world:
        one, other = Source(), Source()
        # The first is full long before anybody reads it.
        assert await world.caller.client("desk").both(one.count(2_000), other.count(3_000)) == [3_000, 0, 1, 2, 3]
        assert one.closed.is_set() and other.closed.is_set()


@pytest.mark.promise("P13.39")
async def test_a_slow_reader_stops_the_generator() -> None:
    service = Desk()
    async with desk_nodes(service) as world:
        source = Source()
        desk = world.caller.client("desk")
        async with asyncio.timeout(30):
            call = asyncio.ensure_future(desk.one_and_wait(source.count(ENDLESS)))
            await service.reading.wait()
            # The generator stops by itself: other calls go back and forth on the link meanwhile.
            await source.ahead.wait()
            for _ in range(20):
                await desk.forget([])
            assert source.written <= MOST_AHEAD
            service.go_on.set()
            await call
        assert source.closed.is_set()


@pytest.mark.promise("P13.39")
@WHERE
async def test_an_error_in_the_middle_comes_after_the_items_before_it(where: str) -> None:
    service = Desk()
    async with desk_nodes(service) as world:
        source = Source()
        with pytest.raises(KeyError, match="broken"):
            await getattr(world, where).client("desk").keep_reading(source.count(200, KeyError("broken")))
        assert service.seen == list(range(200))
        assert isinstance(service.errors[0], KeyError)
        assert source.closed.is_set()


@pytest.mark.promise("P13.41")
@WHERE
async def test_a_callee_that_returns_early_or_never_reads_closes_the_generator(where: str) -> None:
    async with desk_nodes(Desk()) as world:
        desk = getattr(world, where).client("desk")
        source, unread = Source(), Source()
        assert await desk.first(source.count(ENDLESS), 5) == [0, 1, 2, 3, 4]
        assert source.closed.is_set()
        generator = unread.count(ENDLESS)
        assert await desk.forget(generator) == 7
        with pytest.raises(StopAsyncIteration):
            await anext(generator)
        await let_go(world.caller)


@pytest.mark.promise("P13.42")
async def test_a_reader_that_closes_ends_the_generator_while_the_call_goes_on() -> None:
    service = Desk()
    async with desk_nodes(service) as world:
        source = Source()
        call = asyncio.ensure_future(world.caller.client("desk").close_early(source.count(ENDLESS)))
        await service.reading.wait()
        await source.closed.wait()
        assert not call.done()
        service.go_on.set()
        assert await call == 0


@WHERE
async def test_a_read_after_the_end_of_the_call_raises_an_error(where: str) -> None:
    service = Desk()
    async with desk_nodes(service) as world:
        source = Source()
        await getattr(world, where).client(Desk, "desk").leave(source.count(ENDLESS))
        assert source.closed.is_set()
        with pytest.raises((tw.CallCancelled, tw.RemoteGone)):
            await service.task
        assert service.seen == list(range(len(service.seen)))


@pytest.mark.promise("P13.41")
@WHERE
async def test_a_caller_that_cancels_closes_its_generator_and_the_handler(where: str) -> None:
    service = Desk()
    async with desk_nodes(service) as world:
        source = Source()
        call = asyncio.ensure_future(getattr(world, where).client("desk").keep_reading(source.count(ENDLESS)))
        await service.reading.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert source.closed.is_set()
        await service.failed.wait()
        # In one process the handler may see the end of the call at its next read.
        assert isinstance(
            service.errors[0], (asyncio.CancelledError, *([tw.CallCancelled] if where == "server" else []))
        )


@pytest.mark.promise("P13.41")
async def test_a_deadline_closes_the_generator() -> None:
    service = Desk()
    async with desk_nodes(service) as world:
        source = Source()
        with pytest.raises(tw.AskTimeout):
            await world.caller.client("desk").with_(timeout=0.1).keep_reading(source.count(ENDLESS))
        assert source.closed.is_set()
        await service.failed.wait()


@pytest.mark.promise("P13.41")
async def test_a_caller_whose_link_is_lost_ends_the_handler_that_reads() -> None:
    service = Desk()
    async with desk_nodes(service) as world:
        source = Source()
        call = asyncio.ensure_future(world.caller.client("desk").keep_reading(source.count(ENDLESS)))
        await service.reading.wait()
        await world.hub.stop(timeout=0.0)
        with pytest.raises(tw.LinkLost):
            await call
        assert source.closed.is_set()
        await service.failed.wait()
        assert isinstance(service.errors[0], (asyncio.CancelledError, tw.TidewireError))


async def test_items_have_the_type_of_the_parameter() -> None:
    async def points(*found: Any) -> AsyncIterator[Any]:
        for one in found:
            yield one

    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        assert await desk.points(points({"x": 1, "y": 2}, Point(3, 4))) == [3, 7]
        with pytest.raises(tw.InvalidArgument, match=r"points: item 2: .*give Point"):
            await desk.points(points(Point(1, 1), {"x": "no"}))
        with pytest.raises(tw.InvalidArgument, match="numbers: item 1"):
            await desk.total(points("one"))
        with pytest.raises(tw.InvalidArgument, match="numbers: 5 is not allowed: give AsyncIterator"):
            await desk.total(5)


@WHERE
async def test_streams_go_both_ways_at_once(where: str) -> None:
    async with desk_nodes(Desk()) as world:
        source, desk = Source(), getattr(world, where).client("desk")
        assert [n async for n in desk.doubled(source.count(5_000))] == list(range(0, 10_000, 2))
        assert source.closed.is_set()
        endless = Source()
        async with desk.doubled(endless.count(ENDLESS)) as stream:
            for number in range(100):
                assert await anext(stream) == 2 * number
        assert endless.closed.is_set()


async def test_a_stream_of_one_service_is_an_argument_of_another() -> None:
    async with desk_nodes(Desk()) as world:
        desk, source = world.caller.client(Desk, "desk"), Source()
        assert await desk.total(desk.doubled(source.count(1_000))) == sum(range(0, 2_000, 2))


async def test_a_generator_inside_of_data_is_refused_with_its_path() -> None:
    async with desk_nodes(Desk()) as world:
        with pytest.raises(tw.InvalidArgument, match=r"\['numbers'\]"):
            await world.caller.client("desk").forget({"numbers": Source().count(1)})
