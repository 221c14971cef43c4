"""Services: one limit for the calls of an instance, and one for its streams, whichever road they
come on; others wait in their order.
"""

from __future__ import annotations

import asyncio
import functools
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import random_budget
import tidewire as tw
from service_support import PATIENCE, soon

ROADS = ("here", "thread", "link")
ORDER = ("urgent", "high", "normal", "low")


class Room(tw.Service):
    """Handlers that stay inside until the test lets them go on."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.order: list[int] = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.open_soon = asyncio.Event()

    def enter(self, number: int) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.order.append(number)
        self.entered.release()

    def leave(self) -> None:
        with self.lock:
            self.now -= 1

    def let_go(self) -> None:
        self.open.set()
        self.open_soon.set()

    @tw.method
    async def later(self, number: int) -> int:
        self.enter(number)
        await self.open_soon.wait()
        # A call that is admitted too early comes now.
        for _ in range(5):
            await asyncio.sleep(0)
        self.leave()
        return number

    @tw.method
    def plain(self, number: int) -> int:
        self.enter(number)
        assert self.open.wait(PATIENCE)
        self.leave()
        return number

    @tw.method
    async def items(self, number: int) -> AsyncIterator[int]:
        self.enter(number)
        await self.open_soon.wait()
        yield number
        self.leave()

    @tw.method
    def items_plainly(self, number: int) -> Iterator[int]:
        self.enter(number)
        assert self.open.wait(PATIENCE)
        yield number
        self.leave()


def only(room: Room, *kinds: str) -> dict[str, Callable[..., Any]]:
    return {kind: getattr(room, kind) for kind in kinds}


Call = Callable[[str, str, int, str], Awaitable[int]]


def callers(near: Any, far: Any) -> Call:
    """Function that makes a call on a road: it reads a stream to its end, where the method gives
    one.
    """

    async def call(road: str, kind: str, number: int, priority: str) -> int:
        client = (far if road == "link" else near).with_(priority=priority, timeout=PATIENCE)
        if road != "thread":
            if kind.startswith("items"):
                return sum([item async for item in getattr(client, kind)(number)])
            return await getattr(client, kind)(number)
        if kind.startswith("items"):
            return await asyncio.to_thread(lambda: sum(getattr(client.sync, kind)(number)))
        return await asyncio.to_thread(getattr(client.sync, kind), number)

    return call


@asynccontextmanager
async def opened(methods: dict[str, Callable[..., Any]], **limits: int) -> AsyncIterator[tuple[tw.Served, Any, Any]]:
    """Served methods, a client in the same node, and a client over a link."""
    async with tw.Node() as hub:
        served = await hub.serve(methods, name="room", **limits)
        async with tw.Node(hub.listen("tide://127.0.0.1:0").url, name="caller") as caller:
            await caller.until(lambda now: now["links"]["services"].get("room") == 1, timeout=PATIENCE)
            yield served, hub.client("room"), caller.client("room")


def play(story: Callable[[], Any]) -> None:
    """Run a story, with as many threads as it wants to block."""

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
        await story()

    asyncio.run(main())


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.001)


@pytest.mark.promise("P13.81")
@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize(
    "kinds", [("later",), ("plain",), ("later", "plain"), ("items",), ("items_plainly",), ("items", "items_plainly")]
)
def test_all_roads_share_the_places_of_an_instance(kinds: tuple[str, ...], places: int) -> None:
    async def main() -> None:
        room = Room()
        async with opened(only(room, *kinds), concurrency=places, streams=places) as (served, near, far):
            call = callers(near, far)
            wanted = [(road, kind) for _ in range(3) for road in ROADS for kind in kinds]
            calls = [asyncio.ensure_future(call(*one, n, "normal")) for n, one in enumerate(wanted)]
            for _ in range(places):
                await asyncio.to_thread(room.entered.acquire, True, PATIENCE)
            await soon(until(lambda: served.statistics()["waiting"] >= len(calls) - places))
            assert room.now == places
            room.let_go()
            assert await soon(asyncio.gather(*calls)) == list(range(len(wanted)))
            assert (room.most, room.now) == (places, 0)

    play(main)


@pytest.mark.timeout(random_budget.SECONDS + 60)
@pytest.mark.parametrize(
    "kinds", [("later",), ("plain",), ("later", "plain"), ("items",), ("items_plainly",), ("items", "items_plainly")]
)
def test_those_that_wait_begin_by_priority_whichever_road_they_came_on(kinds: tuple[str, ...]) -> None:
    async def main(seed: int) -> None:
        chance = random.Random(seed)
        room = Room()
        async with opened(only(room, *kinds), concurrency=1, streams=1) as (served, near, far):
            call = callers(near, far)
            calls = [asyncio.ensure_future(call("here", kinds[0], 0, "normal"))]
            assert await asyncio.to_thread(room.entered.acquire, True, PATIENCE)
            came: list[str] = ["normal"]
            for number in range(1, 13):
                came.append(chance.choice(ORDER))
                one = call(chance.choice(ROADS), chance.choice(kinds), number, came[-1])
                calls.append(asyncio.ensure_future(one))
                await soon(until(lambda waits=number: served.statistics()["waiting"] == waits))
            room.let_go()
            await soon(asyncio.gather(*calls))
            assert room.order == [0, *sorted(range(1, 13), key=lambda number: ORDER.index(came[number]))], seed
            assert room.most == 1

    for seed in random_budget.seeds(f"{kinds} that wait", random_budget.SECONDS / 5):
        play(functools.partial(main, seed))


def test_an_abandoned_call_over_a_link_releases_its_arguments_while_it_waits() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    async def main() -> None:
        room = Room()

        async def take_later(number: int, blob: bytes) -> int:
            return await room.later(number)

        methods = {"later": room.later, "take": lambda number, blob: number, "take_later": take_later}
        async with opened(methods, concurrency=1) as (served, _, far):
            first = asyncio.ensure_future(far.later(0))
            assert await asyncio.to_thread(room.entered.acquire, True, PATIENCE)
            begin = resident()
            for number in range(1, 31):
                # Text: what is raw bytes may lie in shared memory.
                method = getattr(far, ("take", "take_later")[number % 2])
                call = asyncio.ensure_future(method(number, "x" * 4_000_000))
                await soon(until(lambda waits=number: served.statistics()["waiting"] == waits))
                call.cancel()
                await asyncio.wait([call])
            assert resident() - begin < 40_000_000, "30 calls of 4 MB were given up"
            room.let_go()
            assert await soon(first) == 0
            assert await far.later(1) == 1
            assert room.order == [0, 1]

    play(main)
