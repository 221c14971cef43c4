#!/usr/bin/env python3
"""Resident memory of an idle hub, alone and with idle nodes that have joined over WebSocket.

    python bench/python/idle_memory.py [--nodes 1000] [--rounds 5]

Each round starts a hub of its own. It prints MiB: median of the rounds, least to most. For
comparison it has a Python process that has imported asyncio alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import tidewire as tw

UP = (sys.executable, "-m", "tidewire", "up", "--json", "--log-level", "warning", "--listen", "ws://127.0.0.1:0")
BARE = (sys.executable, "-c", "import asyncio; print(flush=True); input()")


def resident_mib(pid: int) -> float:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def begun(command: tuple[str, ...]) -> tuple[subprocess.Popen[str], str]:
    """Start a process, and give it with its first line."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline()


async def with_nodes(url: str, count: int, hub: int) -> float:
    """The memory of a hub while so many nodes are joined to it."""
    async with AsyncExitStack() as stack:
        for number in range(count):
            await stack.enter_async_context(tw.Node(url, name=f"idle-{number}"))
        return resident_mib(hub)


def one_round(count: int) -> dict[str, float]:
    """The figures of one round."""
    bare, _ = begun(BARE)
    hub, line = begun(UP)
    try:
        found = {"a Python process with asyncio": resident_mib(bare.pid), "an idle hub": resident_mib(hub.pid)}
        found[f"the hub with {count:,} idle nodes"] = asyncio.run(
            with_nodes(json.loads(line)["urls"][0], count, hub.pid)
        )
        return found
    finally:
        for process in (bare, hub):
            process.kill()
            process.communicate()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rounds = [one_round(given.nodes) for _ in range(given.rounds)]
    print(f"MiB, {given.rounds} rounds, Python {sys.version.split()[0]}")
    for name in rounds[0]:
        found = [each[name] for each in rounds]
        print(f"{name}: {statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f})")


if __name__ == "__main__":
    main()
