"""Measures commands in a folder and at a hub in this process: one after another, and many at once.

Usage: python bench/python/commands.py [--folder PATH]

PATH is the place of the data; /dev/shm leaves out the disk. The peers of the project have no such
commands: compare two versions in turns, with PYTHONPATH.
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

ROUNDS, SEQUENTIAL, AT_ONCE = 5, 100, 500


class Sums(tw.Service):
    @tw.command(concurrency=16)
    async def add(self, left: int, right: int) -> int:
        return left + right


async def measure(place: str, folder: Path | None) -> None:
    async with AsyncExitStack() as opened:
        data = opened.enter_context(tempfile.TemporaryDirectory(dir=folder))
        hub = await opened.enter_async_context(tw.Node(data=data, name="hub"))
        node = hub
        if place == "hub":
            node = await opened.enter_async_context(tw.Node(hub.listen("tide://127.0.0.1:0").url, name="node"))
        await node.serve(Sums())
        client = node.client(Sums)

        async def add(number: int) -> None:
            assert await (await client.add.start(number, 1)).result() == number + 1

        async def sequential() -> None:
            for number in range(SEQUENTIAL):
                await add(number)

        async def at_once() -> None:
            await asyncio.gather(*map(add, range(AT_ONCE)))

        await sequential()
        for shape, count, run in (("one after another", SEQUENTIAL, sequential), ("500 at once", AT_ONCE, at_once)):
            rates = [count / await seconds(run) for _ in range(ROUNDS)]
            figures = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
            print(f"{place}, {shape}: {figures} commands/s", flush=True)


async def seconds(run: Callable[[], Awaitable[None]]) -> float:
    begin = perf_counter()
    await run()
    return perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures commands in a folder and at a hub.")
    parser.add_argument("--folder", type=Path, help="place of the data; the folder for temporary files by default")
    folder = parser.parse_args().folder
    print(machine(), versions(None))
    for place in ("folder", "hub"):
        asyncio.run(measure(place, folder))


if __name__ == "__main__":
    main()
