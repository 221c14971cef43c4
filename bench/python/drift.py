#!/usr/bin/env python3
"""Processor time of operations at a hub in rounds, one after another. A time that grows from round
to round shows a list or a table that never shrinks.

    python bench/python/drift.py [--rounds 8] [--calls 10000] [--folder /dev/shm] [OPERATION ...]

It prints microseconds for each operation: of the caller and of the hub, by round, and the resident
memory of both at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import tidewire as tw

Operation = Callable[[], Awaitable[object]]


class Echo(tw.Service):
    """Gives back what it gets."""

    @tw.method
    async def echo(self, value: int) -> int:
        return value

    @tw.method
    def echo_plain(self, value: int) -> int:
        return value

    @tw.method
    async def echo_items(self, value: int) -> AsyncIterator[int]:
        yield value


async def serve(folder: str) -> None:
    """A hub with a data folder and a service, until the end of standard input."""
    async with tw.Node(data=folder) as node:
        await node.serve(Echo(), name="echo")
        print(node.listen("tide://127.0.0.1:0").url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def operations(node: tw.Node) -> dict[str, Operation]:
    client, stream, bucket = node.client("echo"), await node.stream("drift"), await node.kv("drift")
    consumer = await stream.consumer("drift")
    await bucket.put("key", 0)

    async def read() -> list[int]:
        return [item async for item in client.echo_items(1)]

    async def consume() -> None:
        await stream.publish("drift", 1)
        await (await anext(consumer)).ack()

    return {
        "call": lambda: client.echo(1),
        "plain": lambda: client.echo_plain(1),
        "stream": read,
        "publish": lambda: stream.publish("drift", 1),
        "get": lambda: bucket.get("key"),
        "put": lambda: bucket.put("key", 1),
        "consume": consume,
    }


def used_us(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e6


def resident_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        hub = await asyncio.create_subprocess_exec(sys.executable, __file__, "--serve", folder, stdin=-1, stdout=-1)
        assert hub.stdin is not None and hub.stdout is not None
        url, pids = (await hub.stdout.readline()).decode().strip(), (os.getpid(), hub.pid)
        async with tw.Node(url) as node:
            known = await operations(node)
            for name in options.operations or known:
                rounds = []
                for _ in range(options.rounds):
                    before = [used_us(pid) for pid in pids]
                    for _ in range(options.calls):
                        await known[name]()
                    rounds.append([(used_us(pid) - was) / options.calls for pid, was in zip(pids, before, strict=True)])
                caller, at_hub = (" ".join(f"{used:.0f}" for used in column) for column in zip(*rounds, strict=True))
                print(f"{name:<8} caller us: {caller}   hub us: {at_hub}", flush=True)
        print(f"resident MiB: caller {resident_mib(pids[0])}, hub {resident_mib(pids[1])}")
        hub.stdin.close()
        await hub.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measures the processor time of operations at a hub in rounds.")
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help="call, plain, stream, publish, get, ...")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--calls", type=int, default=10_000, help="operations of a round")
    parser.add_argument("--folder", help="where the hub keeps its data")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(serve(options.serve) if options.serve else main(options))
