"""A node calls methods that are only for the node that serves them, by all the subjects that they
could have.
"""

from __future__ import annotations

import contextlib
import time

import tidewire as tw
from link_frames import CALL, called, frame

from attacks.target import TOKENS, Target, drained

ITEM = 14
MEMORY_MIB = 32
_SUBJECTS = ("svc.bank.real.{}", "svc.bank.{}", "svc.vault.real.{}", "svc.vault.{}", "svc.bank.real.bank.{}")
_METHODS = ("empty", "Empty", "__init__", "__class__", "_empty", "seen", "empty.__call__")


def attack(target: Target) -> None:
    link = target.joined()
    drained(link.socket)
    generation = 1
    while True:
        subjects = [subject.format(method).encode() for subject in _SUBJECTS for method in _METHODS]
        for slot, subject in enumerate(subjects):
            link.send(frame(CALL, called(subject), b"\xc0", id=generation << 32 | slot))
        generation += 1
        time.sleep(0.02)


class Bank(tw.Service):
    """One method is for everybody, one for the bank's own node."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @tw.method(visibility="public")
    async def pay(self) -> str:
        return "paid"

    @tw.method(visibility="node")
    async def empty(self) -> str:
        self.seen.append(str(tw.context().node))
        return "emptied"


class Vault(tw.Service, visibility="node"):
    """All of it is for the bank's own node."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @tw.method
    async def empty(self) -> str:
        self.seen.append(str(tw.context().node))
        return "emptied"


async def look(target: Target) -> list[str]:
    """Serve both while that goes on, and call them from where it is allowed, and from where it is
    not.
    """
    bank, vault, problems = Bank(), Vault(), []
    async with (
        tw.Node(target.tide, name="bank", token=TOKENS["good"]) as server,
        tw.Node(target.tide, name="payer", token=TOKENS["good"]) as payer,
    ):
        await server.serve(bank, name="bank", instance="real")
        await server.serve(vault, name="vault", instance="real")
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            if (await payer.client("bank").pay(), await server.client("vault").empty()) != ("paid", "emptied"):
                problems.append("what is allowed fails")
        for name in ("bank", "vault"):
            with contextlib.suppress(tw.TidewireError):
                problems.append(f"{name}.empty answered another node: {await payer.client(name).empty()}")
    strangers = {node for node in (*bank.seen, *vault.seen) if node != "bank"}
    if strangers:
        problems.append(f"let in: {strangers}")
    return problems
