"""Links: many streams on one link, the memory of three processes, slow and lossy networks, and hubs
that come back with TLS and WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import tidewire as tw
from link_processes import Programs
from link_programs import until_served

MIB = 1 << 20
STREAMS = 4_000


async def test_four_thousand_streams_are_open_on_one_link(started: Programs) -> None:
    hub, url, server = started.hub_and_server()
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop")
        assert await workshop.label() == "server"
        before = {program: program.rss_bytes for program in (hub, server)}
        streams = [workshop.count(3).__aiter__() for _ in range(STREAMS)]
        firsts = await asyncio.gather(*(stream.__anext__() for stream in streams))
        assert firsts == [0] * STREAMS
        # All are open now, and a call does not wait for any of them.
        grown = {program: program.rss_bytes - since for program, since in before.items()}
        print(f"{STREAMS:,} streams: server {grown[server] / MIB:.1f} MiB, hub {grown[hub] / MIB:.1f} MiB")
        assert grown[hub] < 2_048 * STREAMS, "the hub keeps a route of each"
        assert grown[server] < 16_384 * STREAMS, "who writes them keeps a generator and a task of each"
        assert await asyncio.wait_for(workshop.label(), 10) == "server"
        for number in (1, 2):
            assert await asyncio.gather(*(stream.__anext__() for stream in streams)) == [number] * STREAMS
        ends = await asyncio.gather(*(stream.__anext__() for stream in streams), return_exceptions=True)
        assert all(isinstance(end, StopAsyncIteration) for end in ends)
        assert await workshop.label() == "server"


LENGTH = 64 * MIB


def made(kind: str) -> Any:
    """A value whose payload has about ``LENGTH`` bytes."""
    match kind:
        case "bytes":
            return bytes(LENGTH)
        case "array beside a mask":
            return {"image": numpy.ones(LENGTH // 8 * 7, dtype=numpy.uint8), "mask": bytes(LENGTH // 8)}
        case "text in Chinese":
            return "\u8def" * (LENGTH // 3)
        case "text with a late accent":
            return "x" * (LENGTH - 2) + "\u00e9"
        case _:
            return [bytes(65_536)] * (LENGTH // 65_536)


KINDS = ["bytes", "array beside a mask", "text in Chinese", "text with a late accent", "list of 64 KiB each"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_payload_is_held_once_where_it_arrives_and_not_at_the_hub(started: Programs, kind: str) -> None:
    hub, url, server = started.hub_and_server()
    value, small = made(kind), numpy.ones(20_000)
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop")
        # One-time costs, such as the module of arrays, are no part of the measurement.
        assert await workshop.size(small) == 20_000
        before = {program: program.forget_peak() for program in (hub, server)}
        assert await workshop.size(value) == len(value)
        grown = {program: program.peak_bytes - since for program, since in before.items()}
        print(f"64 MiB, {kind}: receiver {grown[server] / MIB:.1f} MiB, hub {grown[hub] / MIB:.1f} MiB")
        assert grown[server] <= 1.25 * LENGTH
        assert grown[hub] <= 8 * MIB


@pytest.mark.parametrize("scheme", ["ws", "tide+tls", "wss"])
async def test_nodes_join_a_hub_that_was_started_again(started: Programs, certificates: Path, scheme: str) -> None:
    files = [f"--cert={certificates}/hub.pem", f"--key={certificates}/hub.key"] if scheme != "ws" else []
    tls = tw.Tls(ca=certificates / "ca.pem") if files else None
    hub, url = started.hub(f"{scheme}://127.0.0.1:0", *files)

    async with tw.Node(url, name="server", tls=tls) as server, tw.Node(url, name="caller", tls=tls) as caller:

        async def slow(number: int) -> int:
            await asyncio.Event().wait()
            return number

        await server.serve({"slow": slow, "double": lambda number: number * 2}, name="math")
        math = caller.client("math")
        assert await math.double(21) == 42
        call = asyncio.ensure_future(math.slow(1))
        await asyncio.sleep(0)
        hub.signal(signal.SIGKILL)
        with pytest.raises(tw.LinkLost):
            await call
        await asyncio.to_thread(hub.ended)
        await asyncio.to_thread(started.hub, url, *files)
        await until_served(caller, "math")
        assert await math.double(5) == 10


@pytest.fixture(params=["plain", "slow and lossy"])
def network(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, str]]:
    """A network namespace, and the way to it: its name, the address here, and the device here."""
    name, here, there = f"tw{os.getpid()}", f"twa{os.getpid()}"[:15], f"twb{os.getpid()}"[:15]

    def run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode:
            pytest.skip(f"this machine has no network to try: {' '.join(command)}: {done.stderr.strip()}")

    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            pytest.skip(f"this machine has no network to try: there is no {tool}")
    try:
        run("ip", "netns", "add", name)
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there)
        run("ip", "link", "set", there, "netns", name)
        run("ip", "addr", "add", "10.213.7.1/30", "dev", here)
        run("ip", "link", "set", here, "up")
        run("ip", "netns", "exec", name, "ip", "addr", "add", "10.213.7.2/30", "dev", there)
        run("ip", "netns", "exec", name, "ip", "link", "set", there, "up")
        if request.param != "plain":
            run("tc", "qdisc", "add", "dev", here, "root", "netem", "delay", "20ms", "5ms", "loss", "1%")
        yield name, "10.213.7.1", here
    finally:
        for command in (("ip", "link", "del", here), ("ip", "netns", "del", name)):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, timeout=30, check=False)


async def test_calls_and_long_payloads_pass_a_network_until_it_is_cut(
    started: Programs, network: tuple[str, str, str]
) -> None:
    name, address, device = network
    _, url = started.hub(f"tide://{address}:0", "--insecure", "--set", "links.link_heartbeat_ms=1000")
    server = started.run_at(["ip", "netns", "exec", name], "serve", url, "far", "workshop", "far")
    server.expect("ready")
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop")
        numbers = list(range(200))
        assert await asyncio.gather(*(workshop.echo(number) for number in numbers)) == numbers
        payload = os.urandom(2 * MIB)
        assert await workshop.echo(payload) == payload
        assert [item async for item in workshop.count(300)] == list(range(300))
        # No packet comes through any more: the silent node is noticed, and its call fails then.
        call = asyncio.ensure_future(workshop.hold())
        await asyncio.to_thread(server.expect, "holding")
        cut = ["ip", "link", "set", device, "down"]
        await asyncio.to_thread(subprocess.run, cut, check=True, capture_output=True, timeout=30)
        with pytest.raises(tw.LinkLost):
            await asyncio.wait_for(call, 20)
