"""A node on the same machine has long answers laid in shared memory, and takes none of them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import tidewire as tw

from attacks.cases.resources.untaken_answers import ask_all
from attacks.target import TOKENS, Target

ITEM = 14
MEMORY_MIB = 64
_ANSWER_BYTES = 1 << 20
_CALLS = 40
_READ = 20
_ROOM_MIB = 8
"""``link_shared_bytes`` of the called node: so much of the answers is laid there. All of them fit
``link_queue_bytes``.
"""
_CONFIG = {"links": {"link_shared_bytes": _ROOM_MIB << 20}}
GREW_MIB = 96
"""What the called node may take for them: those answers, and as much again for what is under
way.
"""


def attack(target: Target) -> None:
    """Ask for more than there is room for, ask again what is not served yet, and read on, but say
    of no place that it was read.
    """
    memory, secret = os.memfd_create("tidewire"), os.urandom(16)
    os.write(memory, secret)
    ask_all(target.joined("all", features="shm", place=f"{os.getpid()} {memory} {secret.hex()}"), _CALLS)


class Store(tw.Service):
    @tw.method
    async def load(self) -> bytes:
        return bytes(_ANSWER_BYTES)


async def look(target: Target) -> list[str]:
    problems = []
    async with (
        tw.Node(target.tide, name="store", token=TOKENS["good"], config=_CONFIG) as server,
        tw.Node(target.tide, name="reader", token=TOKENS["good"]) as reader,
    ):
        await server.serve(Store(), name="store", instance="real")
        before = _resident_mib()
        for _ in range(_READ):
            if len(await reader.client("store").load()) != _ANSWER_BYTES:
                problems.append("an answer is not whole")
        full = _ROOM_MIB * 2**20 // (_ANSWER_BYTES + 4_096)
        until = time.monotonic() + 30.0
        while (laid := server.statistics()["links"]["laid"]) < full and time.monotonic() < until:
            await asyncio.sleep(0.02)
        if laid < full:
            problems.append(f"the shared memory was never full: {laid} answers were laid there")
        if len(await reader.client("store").load()) != _ANSWER_BYTES:
            problems.append("an answer is not whole while the memory is full")
        grew = _resident_mib() - before
        if grew > GREW_MIB:
            problems.append(f"the called node took {grew:.0f} MiB")
    return problems


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
