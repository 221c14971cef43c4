"""2,000 nodes that say nothing ask for a sign of life every 25 ms."""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

import tidewire as tw

from attacks.target import TOKENS, Target

ITEM = 13
MEMORY_MIB = 64
"""2,000 nodes with 4 KiB to read into and what keeps them, and the list of them."""
NODES = 2_000
SHARE = 0.5


def attack(target: Target) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    links = [target.joined("all", **{"heartbeat-ms": "50"}) for _ in range(NODES)]
    time.sleep(3_600)
    del links


async def look(target: Target) -> list[str]:
    end = time.monotonic() + 30
    async with tw.Node(target.tide, name="counter", token=TOKENS["good"]) as node:
        while (count := sum(one.user == "all" for one in await node.nodes())) < NODES:
            if time.monotonic() > end:
                return [f"only {count} nodes have joined"]
            await asyncio.sleep(0.1)
    before, began = _ticks(target.pid), time.monotonic()
    await asyncio.sleep(0.5)
    share = (_ticks(target.pid) - before) / 100 / (time.monotonic() - began)
    return [f"the hub takes {share:.0%} of a core"] if share > SHARE else []


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
