"""Links: many streams on one link, the memory of three processes, slow and lossy networks, and hubs
that come back with TLS and WebSocket.
"""

from __future__ import annotations

import asyncio
import signal
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
