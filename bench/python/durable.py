"""Measures commands, durable handlers, consumers and publishing in a folder and at a hub in this
process: one after another, and many at once.

Usage: python bench/python/durable.py [--folder PATH] [commands | events | consume | publish]

PATH is the place of the data; /dev/shm leaves out the disk. The peers of the project have no such
commands and handlers, and `tidewire bench streams` measures publishing beside peers: compare two
versions in turns, with PYTHONPATH.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter

import tidewire as tw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tidewire_bench.machine import machine, versions

ROUNDS, SEQUENTIAL, AT_ONCE, EVENTS = 5, 100, 500, 10_000
PAYLOAD = bytes(256)

Shapes = list[tuple[str, int, Callable[[], Awaitable[None]]]]


class Sums(tw.Service):
    @tw.command(concurrency=16)
    async def add(self, left: int, right: int) -> int:
        return left + right


class Billing(tw.Service):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.missing, self.done, self.loop = 0, asyncio.Event(), loop

    def expect(self, count: int) -> None:
        self.missing = count
        self.done.clear()

    def bill(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.done.set()

    @tw.on("orders.one", durable="one")
    async def on_one(self, number: int) -> None:
        self.bill()

    @tw.on("orders.many", durable="many", concurrency=16)
    async def on_many(self, number: int) -> None:
        self.bill()

    @tw.on("orders.plain", durable="plain")
    def on_plain(self, number: int) -> None:
        self.loop.call_soon_threadsafe(self.bill)


async def commands(node: tw.Node) -> Shapes:
    await node.serve(Sums())
    client = node.client(Sums)

    async def add(number: int) -> None:
        assert await (await client.add.start(number, 1)).result() == number + 1

    async def sequential() -> None:
        for number in range(SEQUENTIAL):
            await add(number)

    async def at_once() -> None:
        await asyncio.gather(*map(add, range(AT_ONCE)))

    return [
        ("commands one after another", SEQUENTIAL, sequential),
        (f"{AT_ONCE} commands at once", AT_ONCE, at_once),
    ]


async def events(node: tw.Node) -> Shapes:
    orders = await node.stream("orders", subjects=["orders.>"])
    billing = Billing(asyncio.get_running_loop())
    await node.serve(billing)

    async def sequential() -> None:
        for number in range(SEQUENTIAL):
            billing.expect(1)
            await orders.publish("orders.one", number)
            await billing.done.wait()

    def at_once(subject: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            billing.expect(EVENTS)
            async with orders.publisher() as out:
                for number in range(EVENTS):
                    await out.publish(subject, number)
            await billing.done.wait()

        return run

    return [
        ("events one after another", SEQUENTIAL, sequential),
        (f"{EVENTS:,} events, async def", EVENTS, at_once("orders.one")),
        (f"{EVENTS:,} events, concurrency=16", EVENTS, at_once("orders.many")),
        (f"{EVENTS:,} events, def", EVENTS, at_once("orders.plain")),
    ]


async def consume(node: tw.Node) -> Shapes:
    orders = await node.stream("orders", subjects=["orders.>"])
    billing = await orders.consumer("billing")

    async def take() -> None:
        await (await anext(billing)).ack()

    async def sequential() -> None:
        for number in range(SEQUENTIAL):
            await orders.publish("orders.one", number)
            await take()

    async def many() -> None:
        async with orders.publisher() as out:
            for number in range(EVENTS):
                await out.publish("orders.one", number)
        for _ in range(EVENTS):
            await take()
        await billing.flush()

    async def replay() -> None:
        count = 0
        async for _ in orders.read():
            count += 1
        assert count >= EVENTS

    return [
        ("events consumed one after another", SEQUENTIAL, sequential),
        (f"{EVENTS:,} events published and consumed", EVENTS, many),
        ("replay", 6 * (EVENTS + SEQUENTIAL), replay),
    ]


async def publish(node: tw.Node) -> Shapes:
    orders = await node.stream("orders", subjects=["orders.>"])

    async def sequential() -> None:
        for _ in range(10 * SEQUENTIAL):
            await orders.publish("orders.one", PAYLOAD, content="bytes")

    async def gathers() -> None:
        for _ in range(EVENTS // SEQUENTIAL):
            await asyncio.gather(*(orders.publish("orders.one", PAYLOAD, content="bytes") for _ in range(SEQUENTIAL)))

    async def publisher() -> None:
        async with orders.publisher() as out:
            for _ in range(10 * EVENTS):
                await out.publish("orders.one", PAYLOAD, content="bytes")

    return [
        ("256 B published one after another", 10 * SEQUENTIAL, sequential),
        (f"256 B published by gathers of {SEQUENTIAL}", EVENTS, gathers),
        ("256 B published by a publisher", 10 * EVENTS, publisher),
    ]


async def measure(place: str, folder: Path | None, begin: Callable[[tw.Node], Awaitable[Shapes]]) -> None:
    async with AsyncExitStack() as opened:
        data = opened.enter_context(tempfile.TemporaryDirectory(dir=folder))
        hub = await opened.enter_async_context(tw.Node(data=data, name="hub"))
        node = hub
        if place == "hub":
            node = await opened.enter_async_context(tw.Node(hub.listen("tide://127.0.0.1:0").url, name="node"))
        for shape, count, run in await begin(node):
            await run()
            rates = [count / await seconds(run) for _ in range(ROUNDS)]
            figures = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
            print(f"{place}, {shape}: {figures} per second", flush=True)


async def seconds(run: Callable[[], Awaitable[None]]) -> float:
    begin = perf_counter()
    await run()
    return perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures commands, durable handlers and publishing.")
    parser.add_argument(
        "kind", nargs="?", choices=["commands", "events", "consume", "publish"], help="only these; all by default"
    )
    parser.add_argument("--folder", type=Path, help="place of the data; the folder for temporary files by default")
    options = parser.parse_args()
    print(machine(), versions(None))
    for begin in (commands, events, consume, publish):
        for place in ("folder", "hub"):
            if options.kind in (None, begin.__name__):
                asyncio.run(measure(place, options.folder, begin))


if __name__ == "__main__":
    main()
