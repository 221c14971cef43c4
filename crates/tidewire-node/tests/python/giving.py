"""A node of Python that gives and takes streams, functions and objects: ``giving.py serve URL``, or
another of the words at its end.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import tidewire as tw


class Broken(Exception):
    """Error of a stream of this side."""


class Counter(tw.Service):
    """An object that Rust holds."""

    def __init__(self) -> None:
        self.total = 0

    @tw.method
    async def add(self, by: int) -> int:
        self.total += by
        return self.total

    @tw.method
    async def count(self, end: int) -> AsyncIterator[int]:
        for number in range(end):
            yield number


class Taker(tw.Service):
    """A service that receives streams of Rust."""

    def __init__(self, node: tw.Node) -> None:
        self.node = node

    @tw.method
    async def sum(self, numbers: AsyncIterator[int]) -> int:
        return sum([number async for number in numbers])

    @tw.method
    def sum_plain(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    @tw.method
    async def zip(self, numbers: AsyncIterator[int], words: AsyncIterator[str]) -> list[tuple[int, str]]:
        return [(number, await anext(words)) async for number in numbers]

    @tw.method
    async def first(self, numbers: AsyncIterator[int], count: int) -> list[int]:
        return [await anext(numbers) for _ in range(count)]

    @tw.method
    async def close(self, numbers: AsyncIterator[int]) -> int:
        first = await anext(numbers)
        await numbers.aclose()  # type: ignore[attr-defined]
        say("closed")
        await asyncio.Event().wait()
        return first

    @tw.method
    async def until_error(self, numbers: AsyncIterator[int]) -> str:
        got = []
        try:
            async for number in numbers:
                got.append(number)
        except tw.RemoteError as error:
            return f"{got} {error.type_name} {error.message}"
        return "no error"

    @tw.method
    async def run(self, steps: int, progress: Any) -> list[int]:
        return [await progress(step) for step in range(steps)]

    @tw.method
    async def fill(self, cart: Any) -> int:
        await cart.add("apple")
        await cart.add(item="pear")
        assert [number async for number in cart.count(3)] == [0, 1, 2]
        return len(await cart.items())

    @tw.method
    async def same(self, function: Any) -> Any:
        return function

    @tw.method
    async def adder(self, by: int) -> Any:
        async def add(number: int) -> int:
            return number + by

        return add

    @tw.method
    async def counter(self) -> Any:
        return Counter()

    @tw.method
    async def given(self) -> int:
        given: int = self.node.statistics()["remote"]["given"]
        return given

    @tw.method
    async def until_none_is_given(self) -> None:
        await self.node.until(lambda statistics: not statistics["remote"]["given"])

    @tw.method
    async def doubled(self, numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for number in numbers:
            yield 2 * number


@dataclass
class Order:
    id: int
    shop: str


class Notes(tw.Service):
    """Handles what Rust publishes."""

    @tw.on("orders.*")
    async def noted(self, order: Order) -> None:
        say(f"python {order.id} {order.shop}")


def say(line: str) -> None:
    print(line, flush=True)


async def serve(url: str) -> None:
    async with tw.Node(url, name="python") as node:
        await node.serve(Taker(node), name="taker")
        say("ready")
        await asyncio.to_thread(sys.stdin.read)


async def counting(end: int, fails: bool = False) -> AsyncIterator[int]:
    try:
        for number in range(end):
            yield number
        if fails:
            raise Broken("it broke")
    finally:
        say("generator closed")


async def call(url: str) -> None:
    async with tw.Node(url, name="python") as node:
        taker = node.client("taker")
        assert await taker.sum(counting(1_000)) == 499_500
        assert await taker.sum(iter(range(100))) == 4_950
        assert await taker.first(counting(10**9), 3) == [0, 1, 2]
        assert await taker.both(counting(3), numbers=counting(4)) == [3, 6]
        assert await taker.until_error(counting(2, fails=True)) == "[0, 1] __main__:Broken it broke"
        assert [number async for number in taker.doubled(counting(200))] == [2 * number for number in range(200)]
        say("done")
        await asyncio.to_thread(sys.stdin.read)


async def objects(url: str) -> None:
    async with tw.Node(url, name="python") as node:
        work = node.client("work")
        steps: list[float] = []

        async def progress(done: float) -> None:
            steps.append(done)

        assert (await work.run(4, progress)).endswith("progress of python")
        assert steps == [0.25, 0.5, 0.75, 1.0]
        assert await work.same(progress) is progress

        async def source(end: int) -> AsyncIterator[int]:
            for number in range(end):
                yield number

        assert await work.collect(source) == [0, 1, 2, 3, 4]
        cart = await work.open()
        assert [await cart.add("apple"), await cart.add(item="pear"), await cart.items()] == [1, 2, ["apple", "pear"]]
        assert [number async for number in cart.count(3)] == [0, 1, 2]
        cart.dispose()
        try:
            await cart.add("x")
        except tw.RemoteGone:
            pass
        else:
            raise AssertionError("it was let go")

        @tw.service(name="cart")
        class Cart:
            @tw.method
            async def add(self, item: str) -> int:
                return len(item)

        assert await work.fill(Cart()) == len("apple")
        marked = tw.remote(progress)
        await work.keep(marked)
        marked.dispose()
        try:
            await work.use_kept(1)
        except tw.RemoteGone:
            pass
        else:
            raise AssertionError("it was disposed of")
        await work.let_go()
        await node.until(lambda statistics: not statistics["remote"]["held"])
        say("done")
        await asyncio.to_thread(sys.stdin.read)


async def events(url: str) -> None:
    async with tw.Node(url, name="python") as node:
        node.publish("orders.new", Order(1, "north"))
        await node.serve(Notes(), name="notes")
        # A subscription is in force when a later call through the hub has been answered.
        await node.client("desk").ping()
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        [desk] = [info for info in await node.services() if info.name == "desk"]
        assert [(event.subject, event.method, event.description) for event in desk.events] == [
            ("orders.*", "on_order", "Notes an order.")
        ]
        say("done")
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    stories = {"serve": serve, "call": call, "events": events, "objects": objects}
    asyncio.run(stories[sys.argv[1]](sys.argv[2]))
