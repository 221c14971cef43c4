#!/usr/bin/env python3
"""Calls between two processes of Python over one NATS server: Tidewire beside nats-py, in turns;
with bytes from a node, with JSON from nats-py.

python tools/servers.py nats -- python bench/nats/calls.py [ROUNDS] [CALLS]

Each round makes so many calls one after another, then as many with 64 under way. It prints
microseconds of one call and calls a second: median of the rounds, least to most.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
from time import perf_counter
from typing import Any

import tidewire as tw

UNDER_WAY = 64


class Echo(tw.Service, visibility="public"):
    """Gives back what it gets."""

    @tw.method
    async def echo(self, value: bytes) -> bytes:
        return value

    @tw.method
    async def text(self, value: str) -> str:
        return value


async def _serve(kind: str, url: str) -> None:
    if kind == "tidewire":
        async with tw.Node(url, name="server") as node:
            await node.serve(Echo())
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)
        return
    import nats.micro

    client = await nats.connect(url)

    async def echo(message: Any) -> None:
        await message.respond(message.data)

    async def text(request: nats.micro.Request) -> None:
        (value,) = json.loads(request.data)
        await request.respond(json.dumps(value).encode())

    await client.subscribe("echo", cb=echo)
    service = await nats.micro.add_service(client, name="micro", version="1.0.0")
    await service.add_endpoint(name="text", subject="micro.text", handler=text)
    await client.flush()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await client.close()


async def _round(call: Any, payload: Any, calls: int) -> tuple[float, float, float]:
    """Return the median and the 99th percentile of one call in us, and calls a second with many
    under way.
    """
    times = []
    for _ in range(calls // 10):
        await call(payload)
    for _ in range(calls):
        since = perf_counter()
        await call(payload)
        times.append((perf_counter() - since) * 1e6)
    times.sort()
    left = iter(range(calls))

    async def work() -> None:
        for _ in left:
            await call(payload)

    since = perf_counter()
    await asyncio.gather(*(work() for _ in range(UNDER_WAY)))
    return times[calls // 2], times[calls * 99 // 100], calls / (perf_counter() - since)


async def _measure(url: str, rounds: int, calls: int) -> None:
    import nats

    kinds = ("tidewire", "nats-py", "tidewire, JSON", "nats-py micro, JSON")
    found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
    client = await nats.connect(url)
    async with tw.Node(url, name="caller") as node:
        echo = node.client(Echo).echo

        async def request(payload: bytes) -> None:
            await client.request("echo", payload, timeout=10)

        def asks(subject: str) -> Any:
            async def ask(value: str) -> None:
                answer = await client.request(subject, json.dumps([value]).encode(), timeout=10)
                assert json.loads(answer.data) == value

            return ask

        raw, text = bytes(256), "x" * 256
        turns = ((echo, raw), (request, raw), (asks("svc.echo.text"), text), (asks("micro.text"), text))
        for _ in range(rounds):
            for kind, (call, payload) in zip(kinds, turns, strict=True):
                found[kind].append(await _round(call, payload, calls))
    await client.close()
    print(f"{rounds} rounds of {calls} calls with 256 bytes, load {os.getloadavg()[0]:.1f}")
    for kind, all_rounds in found.items():
        for name, values in zip(
            ("p50 us", "p99 us", f"calls/s, {UNDER_WAY} at once"), zip(*all_rounds, strict=True), strict=True
        ):
            print(f"{kind:20} {name:24} {statistics.median(values):10,.0f} ({min(values):,.0f} to {max(values):,.0f})")


def main() -> None:
    """Start the servers, and measure."""
    numbers = [int(number) for number in sys.argv[1:3]]
    url = os.environ["TIDEWIRE_TEST_NATS"]
    for name in [name for name in os.environ if name.startswith("TIDEWIRE_TEST_")]:
        # Nodes take what begins like that for their configuration.
        del os.environ[name]
    servers = [
        subprocess.Popen([sys.executable, __file__, "serve", kind, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for kind in ("tidewire", "nats-py")
    ]
    for server in servers:
        assert server.stdout is not None
        server.stdout.readline()
    asyncio.run(_measure(url, *(numbers + [5, 2_000][len(numbers) :])))
    for server in servers:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(_serve(*sys.argv[2:4]))
    else:
        main()
