#!/usr/bin/env python3
"""Python frames of the package for one call to another process, at its caller, for each shape of
call.

    python bench/python/caller_frames.py [--calls 100]

Each call is made 50 times first. Frames of the program itself do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import tidewire as tw

PACKAGE = Path(tw.__file__).parent
WARM_UP = 50


@dataclass
class Record:
    """An argument that is no plain value."""

    data: bytes


class Echo(tw.Service):
    """Gives back what it gets."""

    @tw.method
    async def echo(self, data: bytes) -> bytes:
        return data

    @tw.method
    def echo_plain(self, data: bytes) -> bytes:
        return data

    @tw.method
    async def echo_record(self, record: Record) -> bytes:
        return record.data

    @tw.method
    async def echo_items(self, data: bytes) -> AsyncIterator[bytes]:
        yield data


async def serve() -> None:
    """Serves until the end of standard input."""
    async with tw.Node("mem://") as node:
        await node.serve(Echo(), name="echo")
        print(node.listen("tide://127.0.0.1:0").url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def frames(call: Callable[[], Awaitable[object]], calls: int) -> Counter[str]:
    """The frames of so many calls, by file and function."""
    seen: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            seen[f"{path.relative_to(PACKAGE)} {frame.f_code.co_name}"] += 1

    for _ in range(WARM_UP):
        await call()
    sys.setprofile(note)
    for _ in range(calls):
        await call()
    sys.setprofile(None)
    return seen


async def main(calls: int) -> None:
    service = await asyncio.create_subprocess_exec(sys.executable, __file__, "--serve", stdin=-1, stdout=-1)
    assert service.stdout is not None and service.stdin is not None
    url = (await service.stdout.readline()).decode().strip()
    async with tw.Node(url) as node:
        client, typed = node.client("echo"), node.client(Echo, "echo")

        async def read() -> list[bytes]:
            return [item async for item in client.echo_items(b"x")]

        shapes: dict[str, Callable[[], Awaitable[object]]] = {
            "usual": lambda: client.echo(b"x"),
            "by name": lambda: client.echo(data=b"x"),
            "with a timeout": lambda: client.with_(timeout=20.0).echo(b"x"),
            "plain def": lambda: client.echo_plain(b"x"),
            "record": lambda: client.echo_record(Record(b"x")),
            "typed client": lambda: typed.echo(b"x"),
            "stream of one item": read,
        }
        for name, call in shapes.items():
            seen = await frames(call, calls)
            where = ", ".join(f"{place} ({count / calls:g})" for place, count in seen.items())
            print(f"{name:<20}{seen.total() / calls:>6g}  {where}")
    service.stdin.close()
    await service.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Counts Python frames of the package for each call at its caller.")
    parser.add_argument("--calls", type=int, default=100, help="calls of each shape")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(serve() if options.serve else main(options.calls))
