"""A node says in its greeting and with each call that it is another user, another node, or the
service's own.
"""

from __future__ import annotations

import time

import tidewire as tw
from link_frames import CALL, called, fields, frame, hello

from attacks.target import TOKENS, Target, drained

ITEM = 14
MEMORY_MIB = 32
_NAMES = ("user", "node", "origin", "tw-user", "tw-node", "tw-origin", "tw-trace", "tw-caller", "token")


def attack(target: Target) -> None:
    link = target.raw()
    link.send(hello(token=TOKENS["all"], user="good", node="7", origin="node"))
    drained(link.socket)
    generation = 1
    while True:
        for slot, name in enumerate(_NAMES):
            extra = fields(**{name: "good"})
            link.send(frame(CALL, called(b"svc.bank.real.pay", extra), b"\xc0", id=generation << 32 | slot))
        generation += 1
        time.sleep(0.02)


class Bank(tw.Service):
    """The real one, which looks at who pays."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, str]] = []

    @tw.method
    async def pay(self) -> str:
        context = tw.context()
        self.seen.append((context.user, str(context.node)))
        return "paid"


async def look(target: Target) -> list[str]:
    bank, problems = Bank(), []
    async with (
        tw.Node(target.tide, name="bank", token=TOKENS["good"]) as server,
        tw.Node(target.tide, name="payer", token=TOKENS["good"]) as payer,
    ):
        await server.serve(bank, name="bank", instance="real")
        until = time.monotonic() + 20
        while not any(node.startswith("raw-") for _, node in bank.seen) and time.monotonic() < until:
            if await payer.client("bank").pay() != "paid":
                problems.append("the bank answers otherwise")
    forged = {(user, node) for user, node in bank.seen if (user == "good") != (node == "payer")}
    if forged:
        problems.append(f"calls came as {forged}")
    if not any(user == "all" for user, _ in bank.seen):
        problems.append("no call of the attacker came")
    return problems
