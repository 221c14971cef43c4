"""A node asks for long answers, more than may wait at who answers, and takes none of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import tidewire as tw
from link_frames import CALL, FAIL, Raw, called, frame

from attacks.target import TOKENS, Target

ITEM = 14
MEMORY_MIB = 64
_ANSWER_BYTES = 1 << 20
_CALLS = 200
_CALLED_LEAST = 150
_READ = 20
_PATIENCE_S = 30.0


def attack(target: Target) -> None:
    ask_all(target.joined("all"), _CALLS)


def ask_all(link: Raw, calls: int) -> None:
    """Make so many calls at once, and make those again that fail: the store is not served yet, or
    there is no room.
    """
    generations = [1] * calls

    def ask(slot: int) -> None:
        exchange = generations[slot] << 32 | slot
        link.send(frame(CALL, called(b"svc.store.real.load", deadline_ms=0), b"\x92\x90\x80", id=exchange))

    for slot in range(calls):
        ask(slot)
    while (came := link.receive()) is not None:
        if came[0] == FAIL:
            slot = came[1] & 0xFFFF_FFFF
            generations[slot] += 1
            time.sleep(0.002)
            ask(slot)


class Store(tw.Service):
    """Gives long answers, one at once or one after the other."""

    def __init__(self) -> None:
        self.asked = 0
        self.flooded = asyncio.Event()

    @tw.method
    async def load(self) -> bytes:
        self.asked += 1
        if self.asked == _CALLED_LEAST:
            self.flooded.set()
        return bytes(_ANSWER_BYTES)

    @tw.method
    async def load_all(self) -> AsyncIterator[bytes]:
        for _ in range(_READ):
            yield bytes(_ANSWER_BYTES)


async def look(target: Target) -> list[str]:
    problems: list[str] = []
    store = Store()
    async with (
        tw.Node(target.tide, name="store", token=TOKENS["good"]) as server,
        tw.Node(target.tide, name="reader", token=TOKENS["good"]) as reader,
    ):
        await server.serve(store, name="store", instance="real")
        try:
            await asyncio.wait_for(store.flooded.wait(), _PATIENCE_S)
        except TimeoutError:
            problems.append(f"the store was asked for {store.asked} answers only")
        client = reader.client("store")
        for _ in range(_READ):
            if len(await client.load()) != _ANSWER_BYTES:
                problems.append("an answer is not whole")
        async with client.load_all() as items:
            if [len(item) async for item in items] != [_ANSWER_BYTES] * _READ:
                problems.append("a stream is not whole")
    return problems
