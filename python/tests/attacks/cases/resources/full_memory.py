"""A node on the same machine has long answers laid in shared memory, and takes none of them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import tidewire as tw
from link_frames import CALL, FAIL, called, frame

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
    link = target.joined("all", features="shm", place=f"{os.getpid()} {memory} {secret.hex()}")
    generations = [1] * _CALLS

    def ask(slot: int) -> None:
        exchange = generations[slot] << 32 | slot
        link.send(frame(CALL, called(b"svc.store.real.load", deadline_ms=0), b"\x92\x90\x80", id=exchange))

    for slot in range(_CALLS):
        ask(slot)
    while (came := link.receive()) is not None:
        if came[0] == FAIL:
            slot = came[1] & 0xFFFF_FFFF
            generations[slot] += 1
            time.sleep(0.002)
            ask(slot)


class Store(tw.Service):
    """Gives long answers."""

    @tw.method
    async def load(self) -> bytes:
        """Give one."""
        return bytes(_ANSWER_BYTES)


def look(target: Target) -> list[str]:
    """Serve the store while that goes on, and load from it."""
    return asyncio.run(_look(target))


async def _look(target: Target) -> list[str]:
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
