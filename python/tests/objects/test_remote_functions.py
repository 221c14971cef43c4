"""Functions as arguments and results of calls between nodes."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import tidewire as tw
from link_programs import until_served
from remote_support import Stranger, counts, desk_nodes, has, let_go
from tidewire.testing import Clock


class Desk(tw.Service):
    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    @tw.method
    async def work(self, steps: int, progress: Callable[[int], Awaitable[Any]]) -> list[Any]:
        return [await progress(step) for step in range(steps)]

    @tw.method
    def block(self, progress: Callable[[int], int]) -> int:
        return progress(20)

    @tw.method
    def work_plainly(self, progress: Any) -> list[Any]:
        return [progress.sync(step) for step in range(3)]

    @tw.method
    async def call(self, function: Any, *args: Any, **named: Any) -> Any:
        return await function(*args, **named)

    @tw.method
    async def read(self, function: Any) -> list[int]:
        return [number async for number in function(5)]

    @tw.method
    async def keep(self, function: Any) -> None:
        self.kept.append(function)

    @tw.method
    async def ring(self, at: int = 0) -> Any:
        return await self.kept[at](at)

    @tw.method
    async def drop(self) -> None:
        self.kept.clear()
        gc.collect()

    @tw.method
    async def has(self, function: Any) -> bool:
        return function in self.kept

    @tw.method
    async def hold(self, function: Any) -> None:
        self.begun.set()
        await self.go_on.wait()
        await function()

    @tw.method
    async def adder(self, amount: int) -> Any:
        async def add(number: int) -> int:
            return number + amount

        return add

    @tw.method
    async def adders(self) -> AsyncIterator[Any]:
        for amount in range(3):
            yield await self.adder(amount)

    @tw.method
    async def same(self, value: Any) -> Any:
        return value


async def double(number: int) -> int:
    return 2 * number


@pytest.mark.promise("P13.52")
async def test_every_kind_of_function_can_be_an_argument() -> None:
    class Meter:
        def __init__(self) -> None:
            self.seen: list[int] = []

        async def note(self, number: int) -> int:
            self.seen.append(number)
            return number

    async with desk_nodes(Desk()) as world:
        desk, meter, seen = world.caller.client("desk"), Meter(), list[int]()
        assert await desk.work(3, double) == [0, 2, 4]
        assert await desk.work(3, lambda step: step + 1) == [1, 2, 3]
        assert await desk.work(3, meter.note) == meter.seen == [0, 1, 2]
        assert await desk.work(3, seen.append) == [None] * 3
        assert seen == [0, 1, 2]
        assert await desk.work(3, functools.partial(pow, 2)) == [1, 2, 4]
        assert await desk.work_plainly(double) == [0, 2, 4]
        assert await desk.call(function=double, number=4) == 8
        await let_go(world.caller, world.server)


@pytest.mark.promise("P13.54")
async def test_a_call_of_a_function_is_a_call() -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def fails() -> None:
        raise KeyError("here")

    async def slow() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    async def typed(number: int) -> tuple[int, str]:
        return number, tw.context().node

    async def count(most: int) -> AsyncIterator[int]:
        for number in range(most):
            yield number

    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        with pytest.raises(KeyError, match="here"):
            await desk.call(fails)
        assert await desk.call(typed, 3) == (3, "server")
        with pytest.raises(tw.InvalidArgument, match="number: 'x' is not allowed"):
            await desk.call(typed, "x")
        with pytest.raises(tw.InvalidArgument, match="number: missing"):
            await desk.call(typed)
        assert await desk.read(count) == [0, 1, 2, 3, 4]
        # The time of the call is the time of what it calls.
        with pytest.raises(tw.AskTimeout):
            await desk.with_(timeout=0.2).call(slow)
        await left.wait()
        assert entered.is_set()


async def test_the_annotation_says_how_a_function_is_called_in_one_process_too() -> None:
    async with desk_nodes(Desk()) as world:
        for desk in (world.caller.client("desk"), world.server.client("desk")):
            seen: list[int] = []
            await desk.work(2, seen.append)
            assert seen == [0, 1]
            assert await desk.work(2, double) == [0, 2]
            assert await desk.block(lambda step: step + 1) == 21
            with pytest.raises(tw.InvalidArgument, match="progress: 5 is not allowed: give Callable"):
                await desk.work(2, 5)


@pytest.mark.promise("P13.55")
async def test_a_plain_function_runs_on_a_thread_and_a_coroutine_on_the_loop() -> None:
    threads: list[threading.Thread] = []

    def plain() -> None:
        threads.append(threading.current_thread())

    async def on_loop() -> None:
        threads.append(threading.current_thread())

    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        await desk.call(plain)
        await desk.call(on_loop)
        assert threads[0] is not threading.main_thread()
        assert threads[1] is threading.main_thread()


async def test_a_plain_thread_gives_a_function_and_waits() -> None:
    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        assert await asyncio.to_thread(desk.sync.work, 3, double) == [0, 2, 4]
        await let_go(world.caller)


@pytest.mark.promise("P13.57")
async def test_the_same_function_is_the_same_proxy_and_comes_back_as_itself() -> None:
    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        await desk.keep(double)
        assert await desk.has(double)
        assert not await desk.has(lambda: None)
        assert await desk.same(double) is double
        await desk.keep(double)
        assert counts(world.caller)[0] == 1
        await desk.drop()
        await let_go(world.caller)


@pytest.mark.parametrize("priority", ["low", "normal", "urgent"])
async def test_a_function_comes_back_from_the_call_that_gave_it(priority: str) -> None:
    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk").with_(priority=priority)

        async def same() -> bool:
            async def mine() -> None: ...

            # The release of its proxy may overtake the answer.
            return await desk.same(mine) is mine

        for _ in range(10):
            assert all([await one for one in [asyncio.create_task(same()) for _ in range(30)]])
        await let_go(world.caller, world.server)


@pytest.mark.promise("P13.59")
async def test_a_result_may_be_a_function_and_so_may_items() -> None:
    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        async with await desk.adder(5) as add:
            assert await add(1) == 6
            assert await asyncio.to_thread(add.sync, 2) == 7
            assert await add.with_(timeout=5.0)(3) == 8
            assert counts(world.server) == (1, 0) and counts(world.caller) == (0, 1)
        with pytest.raises(tw.RemoteGone, match="disposed"):
            await add(1)
        assert [await add(1) async for add in desk.adders()] == [1, 2, 3]
        del add
        gc.collect()
        await let_go(world.server, world.caller)


@pytest.mark.promise("P13.59", "P13.62")
async def test_the_owner_lets_a_function_go() -> None:
    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        given = tw.remote(double)
        await desk.keep(given)
        assert await desk.ring() == 0
        given.dispose()
        assert counts(world.caller) == (0, 0)
        with pytest.raises(tw.RemoteGone, match="disposed"):
            await desk.ring()


@pytest.mark.promise("P13.60")
async def test_a_lease_ends_without_use_and_each_use_renews_it(tidewire_clock: Clock) -> None:
    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        await desk.keep(tw.remote(double, lease=12.0))
        for _ in range(3):
            await asyncio.sleep(8.0)
            assert await desk.ring() == 0
        await let_go(world.caller)
        with pytest.raises(tw.RemoteGone, match="lease"):
            await desk.ring()


@pytest.mark.promise("P13.61")
async def test_a_lease_stands_still_during_the_call_that_gives() -> None:
    service = Desk()
    async with desk_nodes(service) as world:
        called = asyncio.Event()

        async def call() -> None:
            called.set()

        desk = world.caller.client("desk")
        waiting = asyncio.ensure_future(desk.hold(tw.remote(call, lease=0.001)))
        await service.begun.wait()
        other = asyncio.ensure_future(desk.keep(tw.remote(double, lease=0.001)))
        await other
        # The lease of the other is over, and long that of the first would be.
        await has(world.caller, 1, 0)
        service.go_on.set()
        await waiting
        assert called.is_set()


@pytest.mark.promise("P13.62")
async def test_nothing_survives_the_link_of_its_owner() -> None:
    async with desk_nodes(Desk()) as world:

        async def own(number: int) -> int:
            return number

        async with world.node("owner") as owner:
            await owner.client("desk").keep(own)
            assert await world.caller.client("desk").ring() == 0
        # Nor does its owner hold it any more.
        assert counts(owner) == (0, 0)
        known = weakref.ref(own)
        del own
        gc.collect()
        assert known() is None
        with pytest.raises(tw.RemoteGone, match="'owner'"):
            await world.caller.client("desk").ring()
        with pytest.raises(tw.RemoteGone):
            await world.caller.client("desk").ring()


@pytest.mark.promise("P13.58")
async def test_a_third_node_gets_no_proxy_of_what_another_owns() -> None:
    async with desk_nodes(Desk()) as world:
        add = await world.caller.client("desk").adder(1)
        async with world.node("third") as third:
            await third.serve(Desk(), name="other")
            await until_served(world.caller, "other")
            with pytest.raises(tw.InvalidArgument, match="belongs to another node"):
                await world.caller.client("other").keep(add)
            assert await world.caller.client("other").call(lambda number: add.sync(number), 4) == 5


async def test_a_call_that_reaches_nobody_gives_nothing() -> None:
    async with desk_nodes(Desk()) as world:
        stranger = await Stranger.join(world)
        await stranger.say_goodbye()
        with pytest.raises(tw.TidewireError):
            await world.caller.client("desk").with_(instance="stranger").keep(double)
        assert counts(world.caller) == (0, 0)
        with pytest.raises(tw.InvalidArgument, match=r"\[1\]"):
            await world.caller.client("desk").call(double, object())
        assert counts(world.caller) == (0, 0)
        stranger.leave()


@pytest.mark.promise("P13.56", "P13.60")
async def test_a_guessed_or_stolen_key_gives_nothing_and_ends_with_the_link_of_its_holder() -> None:
    async with desk_nodes(Desk()) as world:
        holder = await Stranger.join(world)
        keeping = asyncio.ensure_future(world.caller.client("desk").with_(instance="stranger").keep(double))
        exchange, (reference,) = await holder.came()
        number, key = reference["node"], reference["key"]
        await holder.call(f"$node.{number}.claim", [key])
        holder.answer(exchange, None)
        await keeping
        assert await holder.call(f"$node.{number}.{key}.call", (21,)) == 42
        async with world.node("thief") as thief:
            for subject in (f"$node.{number}.{key}.call", f"$node.{number}.{'0' * 32}.call", f"$node.{number}.x"):
                with pytest.raises(tw.RemoteGone):
                    await thief.request(subject, (1,))
            # Neither claims nor releases of another node change anything.
            await thief.request(f"$node.{number}.release", [key, 1])
            with pytest.raises(tw.RemoteGone):
                await thief.request(f"$node.{number}.claim", [key])
            for nonsense in (5, [key], ["a", "b"], {"a": 1}):
                with pytest.raises(Exception, match=r".+"):
                    await thief.request(f"$node.{number}.release", nonsense)
        assert await holder.call(f"$node.{number}.{key}.call", (4,)) == 8
        assert counts(world.caller) == (1, 0)
        holder.leave()
        await let_go(world.caller)
