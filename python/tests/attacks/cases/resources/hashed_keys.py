"""A node calls a service of Python with sets and maps of 12,000 keys that have one hash, again and
again.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID

import tidewire as tw
from link_frames import CALL, CHUNK, FAIL, MORE, NORMAL, PING, PONG, Raw, called, frame
from tidewire.values import encode

from attacks.target import TOKENS, Target, drained

ITEM = 8
MEMORY_MIB = 96
"""Twice what may wait for one link."""
KEYS = 12_000
PIECE_BYTES = 1 << 15
STILL_S = 0.5
"""Less than building the smallest of these sets takes."""
_PRIME = 2**61 - 1
"""What hashes of numbers are taken modulo."""


def attack(target: Target) -> None:
    link = target.joined()
    drained(link.socket)
    values, exchange = list(payloads()), 1 << 32
    while True:
        for value in values:
            link.send(_call(value, exchange))
            exchange += 1 << 32
            time.sleep(0.02)


def _call(value: bytes, exchange: int) -> bytes:
    head = called(b"svc.sink.one.take", deadline_ms=0)
    pieces = [value[at : at + PIECE_BYTES] for at in range(0, len(value), PIECE_BYTES)]
    frames = [frame(CALL, head, struct.pack("<Q", len(value)), NORMAL | MORE, exchange)]
    frames += [frame(CHUNK, b"", piece, NORMAL | MORE, exchange) for piece in pieces[:-1]]
    return b"".join([*frames, frame(CHUNK, b"", pieces[-1], NORMAL, exchange)])


def payloads() -> Iterator[bytes]:
    """The arguments of calls: nobody can make such a set or map to have it written."""
    for key in (UUID, Decimal, lambda int: (Decimal(int),)):
        keys = [key(int=at * _PRIME + 7) if key is UUID else key(at * _PRIME + 7) for at in range(KEYS)]
        # A tuple of one list: an extension of 32 bits, and an array of one.
        array = encode((keys,))[7:]
        for set_or_frozen in (2, 3):
            yield _extension(1, b"\x91" + _extension(set_or_frozen, array))
        items = array[3:] if array[0] == 0xDC else array[5:]
        yield _extension(1, b"\x91\xdf" + struct.pack(">I", KEYS // 2) + items)


def _extension(kind: int, data: bytes) -> bytes:
    return b"\xc9" + struct.pack(">IB", len(data), kind) + data


class Sink(tw.Service):
    @tw.method
    async def take(self, value: object) -> None:
        """Take it."""


async def look(target: Target) -> list[str]:
    longest, last = 0.0, time.monotonic()
    async with tw.Node(target.tide, name="sink", token=TOKENS["good"]) as node:
        await node.serve(Sink(), name="sink", instance="one")
        refusing = asyncio.ensure_future(asyncio.to_thread(_refused, target))
        while not refusing.done():
            await asyncio.sleep(0.01)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
    problems = [f"the event loop stood still for {longest:.1f} s"] if longest > STILL_S else []
    return [*problems, *await refusing]


def _refused(target: Target) -> list[str]:
    """Make each of these calls once, and look whether it is refused."""
    link, problems = target.joined(), []
    for number, value in enumerate(payloads(), 1):
        link.send(_call(value, number << 32))
        kind, _, payload = _answer(link)
        if kind != FAIL or b"have one hash" not in payload:
            problems.append(f"call {number} got {kind}: {payload[:80]!r}")
    link.close()
    return problems


def _answer(link: Raw) -> tuple[int, int, bytes]:
    while (came := link.receive()) is not None:
        kind, exchange, _, payload = came
        if kind == PING:
            link.send(frame(PONG, id=exchange, flags=0))
        elif exchange:
            return kind, exchange, payload
    return 0, 0, b"the link was closed"
