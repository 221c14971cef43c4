"""Types of actors and pools: what mypy and pyright know of messages and replies. CI runs both on
this program.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import assert_type

import tidewire as tw


@dataclass
class Add:
    number: int


@dataclass
class Get:
    pass


class Counter:
    def __init__(self, start: int) -> None:
        self.total = start

    def receive(self, message: Add | Get) -> int:
        self.total += message.number if isinstance(message, Add) else 0
        return self.total


class Slow:
    async def receive(self, message: Get, context: tw.Context) -> str:
        await asyncio.sleep(0)
        return f"{context.delivery}"


def double(number: int) -> int:
    return 2 * number


async def spell(number: int) -> str:
    return "x" * number


def early(number: int, context: tw.Context) -> None:
    """Replies before it returns: type checkers don't know the type of the reply."""
    context.reply(number)


def halves(numbers: list[int]) -> list[float]:
    return [number / 2 for number in numbers]


async def ask(counter: tw.ActorRef[Add | Get, int]) -> int:
    return await counter.ask(Add(3), timeout=5.0)


async def refused(node: tw.Node) -> None:
    """Errors that type checkers find. The function is not run."""
    node.spawn(double).tell("X")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    node.spawn(double, nam="X")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await node.pool(double).submit("X")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tw.Pool(double, capacty=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def block(node: tw.Node) -> None:
    """In a plain thread."""
    assert_type(node.sync.ask(node.spawn(double), 4), int)
    with tw.Pool(double, 1) as pool:
        assert_type(pool.sync.submit(4), int)


def store(node: tw.Node) -> None:
    """In a plain thread; it is not run, as the node has no folder."""
    orders = node.sync.stream("orders", subjects=["orders.>"])
    assert_type(orders.publish("orders.made", 1, key="ACME").sequence, int)
    assert_type([event.sequence for event in orders.read(start=1)], list[int])
    assert_type(orders.consumer("billing").requeue(1, 2), int)
    orders.publish("orders.made")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def main() -> None:
    async with tw.Node() as node:
        counter = node.spawn(Counter, 5, name="counter")
        assert_type(counter, tw.ActorRef[Add | Get, int])
        assert await ask(counter) == 8
        assert_type(await node.spawn(Slow).ask(Get()), str)
        assert_type(await node.spawn(double).ask(4), int)
        assert_type(await node.spawn(spell, concurrency=2).ask(4), str)
        assert await node.spawn(early).ask(4) == 4
        assert await node.spawn(lambda number: number + 1).ask(4) == 5  # pyright: ignore[reportUnknownMemberType]
        anything: tw.ActorRef = counter
        await anything.send(Add(1))
        pool = node.pool(double, workers=1)
        assert_type(await pool.submit(4), int)
        async for number in pool.map([1, 2, 3]):
            assert_type(number, int)
        assert_type(await node.pool(spell, workers=1).submit(number=4), str)
        assert_type(await node.pool(halves, workers=1, batch=True).submit(4), float)
        assert await node.pool("operator:neg", workers=1).submit(4) == -4
        await asyncio.to_thread(block, node)


if __name__ == "__main__":
    asyncio.run(main())
    print("actors: types as they should be")
