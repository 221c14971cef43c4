"""A node that may only subscribe gets itself into the way of calls, with patterns and queue groups
of all kinds.
"""

from __future__ import annotations

import contextlib

import tidewire as tw
from link_frames import ANSWER, CALL, NORMAL, REPLY, SUBSCRIBE, frame, subscribed

from attacks.bank import Bank
from attacks.target import TOKENS, Target

ITEM = 4
MEMORY_MIB = 32
_PATTERNS = (
    b"svc.bank.>",
    b"svc.bank.*",
    b"svc.bank.*.*",
    b"svc.bank.real.*",
    b"svc.>",
    b">",
    b"*.bank.>",
    b"till.>",
    b"till.open",
)


def attack(target: Target) -> None:
    link = target.joined("listener")
    slot = 0
    for pattern in _PATTERNS:
        for queue in (b"", b"bank", b"other"):
            link.send(frame(SUBSCRIBE, subscribed(pattern, queue), id=1 << 32 | slot))
            slot += 1
    while (came := link.receive()) is not None:
        if came[0] == CALL:
            link.send(frame(REPLY, b"", b"\xa6stolen", NORMAL | ANSWER, came[1]))


async def look(target: Target) -> list[str]:
    problems = []
    async with (
        tw.Node(target.tide, name="bank", token=TOKENS["good"]) as server,
        tw.Node(target.tide, name="caller", token=TOKENS["good"]) as caller,
    ):
        await server.serve(Bank(), name="bank", instance="real")
        bank = caller.client("bank")
        answers = {await bank.pay() for _ in range(100)}
        if answers != {"paid"}:
            problems.append(f"calls were answered with {answers}")
        with contextlib.suppress(tw.NoResponders):
            problems.append(
                f"a request was answered with {await caller.request('till.open', 'a secret', timeout=5.0)!r}"
            )
    return problems
