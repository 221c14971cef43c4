"""A node that has learned the keys of functions which others were given calls, claims and releases
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import tidewire as tw
from link_frames import CALL, FAIL, REPLY, Raw, called, frame

from attacks.target import TOKENS, Target

ITEM = 14
MEMORY_MIB = 32


def attack(target: Target) -> None:
    """Only stay: the keys are those of the nodes of ``look``, which tells them to a link of its
    own.
    """
    link = target.joined()
    while link.receive() is not None:
        pass


class Counter(tw.Service):
    """Keeps the function that it is given."""

    def __init__(self) -> None:
        self.tick: Callable[[int], Awaitable[int]] | None = None

    @tw.method
    async def keep(self, tick: Callable[[int], Awaitable[int]]) -> int:
        self.tick = tick
        return await tick(0)


async def look(target: Target) -> list[str]:
    ticks: list[int] = []

    def tick(number: int) -> int:
        ticks.append(number)
        return number

    counter, problems = Counter(), []
    async with (
        tw.Node(target.tide, name="giver", token=TOKENS["good"]) as giver,
        tw.Node(target.tide, name="holder", token=TOKENS["good"]) as holder,
    ):
        await holder.serve(counter, name="counter", instance="real")
        await giver.client("counter").keep(tick)
        connection = giver._connection
        [key] = holder._link().objects._imports.keys()
        number = connection.link.joined[1]
        thief = target.joined("other")
        thief.socket.settimeout(10.0)
        loop = asyncio.get_running_loop()
        packed = b"\x91\xd9" + bytes([len(key)]) + key.encode()
        release = b"\x92\xd9" + bytes([len(key)]) + key.encode() + b"\x01"
        tries = [
            *((f"{key}.{method}", b"\x92\x91\x07\x80") for method in ("__call__", "call", "tick")),
            (key, b"\x92\x91\x07\x80"),
            ("claim", packed),
            ("release", release),
        ]
        for slot, (what, payload) in enumerate(tries):
            subject = f"$node.{number}.{what}".encode()
            answer = await loop.run_in_executor(None, _asked, thief, subject, payload, slot)
            if answer[0] == REPLY and what != "release":
                problems.append(f"{what.removeprefix(key)!r} was answered")
            elif answer[0] not in (REPLY, FAIL):
                problems.append(f"{what!r} was answered with a frame of kind {answer[0]}")
        if ticks != [0]:
            problems.append(f"the function was called with {ticks}")
        if counter.tick is None or await counter.tick(1) != 1 or ticks != [0, 1]:
            problems.append("its holder can't call it any more")
        thief.close()
    return problems


def _asked(thief: Raw, subject: bytes, payload: bytes, slot: int) -> tuple[int, bytes]:
    thief.send(frame(CALL, called(subject, deadline_ms=5_000), payload, id=1 << 32 | slot))
    while (came := thief.receive()) is not None:
        if came[0] in (REPLY, FAIL):
            return came[0], came[3]
    return 0, b""
