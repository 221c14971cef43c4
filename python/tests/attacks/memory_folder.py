"""Memory of a hub with a data folder that clients fill: events that wait to be stored, ids that are
remembered, values of buckets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import tidewire as tw
from link_frames import Raw

from attacks.target import TOKENS, Target

KIB, MIB = 1 << 10, 1 << 20
INTAKE = 64 * MIB
"""`home_intake_bytes`."""
BUCKET_BYTES = 8 * MIB
ENTRY = 512
"""Bytes that a value of a bucket takes beside its key and itself: where it is in the order of keys,
and of revisions.
"""
KEYS = 20_000
IDS = 100_000
ID = 256
"""Bytes that an id takes beside itself."""
EVENT = 1 * MIB
CLIENTS = 8
PAYLOAD_BYTES = 32 * MIB
WAITING = 2 * INTAKE + 4 * PAYLOAD_BYTES
"""What waits, and what is written of it; beside that what is on its way to the hub's own node."""
VALUES = 2 * BUCKET_BYTES + KEYS * ENTRY
REMEMBERED = IDS * (32 + ID)


def events(target: Target) -> list[Raw]:
    """Clients publish long events, more than may wait, and wait for none of them."""
    stored: list[bool] = []

    async def fill(node: tw.Node, number: int) -> None:
        stream = await node.stream(f"loud-{number}", subjects=[f"loud.{number}"])
        payload = bytes(EVENT)
        said = [stream.publish(f"loud.{number}", payload) for _ in range(2 * INTAKE // EVENT // CLIENTS)]
        stored.extend(not isinstance(ack, Exception) for ack in await asyncio.gather(*said, return_exceptions=True))

    asyncio.run(_all(target, fill, CLIENTS))
    assert any(stored), "all are refused"
    return []


def values(target: Target) -> list[Raw]:
    """A bucket of many short values, and one of few long ones, which is full."""

    async def fill(node: tw.Node, _: int) -> None:
        short = await node.kv("short", max_bytes=BUCKET_BYTES)
        for begin in range(0, KEYS, 500):
            await asyncio.gather(*(short.put(f"k{number}", number) for number in range(begin, begin + 500)))
        long = await node.kv("long", max_bytes=BUCKET_BYTES)
        with_room = BUCKET_BYTES // (256 * KIB) - 1
        for number in range(with_room):
            await long.put(f"k{number}", bytes(256 * KIB))

    asyncio.run(_all(target, fill, 1))
    return []


def ids(target: Target) -> list[Raw]:
    """Events with ids of their own, each of which the stream remembers."""

    async def fill(node: tw.Node, _: int) -> None:
        stream = await node.stream("named", subjects=["named"], dedupe=3_600.0)
        async with stream.publisher(window=1_000) as out:
            for number in range(IDS):
                await out.publish("named", number, id=f"{number:032}")

    asyncio.run(_all(target, fill, 1))
    return []


async def _all(target: Target, fill: Callable[[tw.Node, int], Awaitable[None]], count: int) -> None:
    async def one(number: int) -> None:
        async with tw.Node(target.tide, name=f"filling-{number}", token=TOKENS["all"]) as node:
            await fill(node, number)

    await asyncio.gather(*(one(number) for number in range(count)))
