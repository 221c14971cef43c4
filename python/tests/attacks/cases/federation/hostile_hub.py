"""A hub that others join announces thousands of services, calls and publishes what it may not,
and answers calls with wrong frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import queue
import socket
import struct
import threading
import time

import tidewire as tw
from link_frames import (
    ANSWER,
    CALL,
    FAIL,
    HELLO,
    NORMAL,
    OK,
    PING,
    PONG,
    PUBLISH,
    REPLY,
    SUBSCRIBE,
    WELCOME,
    Raw,
    fields,
    frame,
    published,
)

from attacks.bank import Bank
from attacks.target import TOKENS, Target

ITEM = 17
MEMORY_MIB = 64
"""One list of services, of which the hub keeps the shared ones."""
_SERVICES = 5_000
_SLOTS = 64
"""Calls of the flood that are open at once."""
_SUBJECTS = ("svc.bank.real.pay", "svc.bank.pay", "svc.vault.pay", "agent.boss", "$hub.services", "$node.1.x", "news.a")


def attack(target: Target) -> None:
    with socket.create_server(("127.0.0.1", target.other)) as server:
        while True:
            link, _ = server.accept()
            threading.Thread(target=_serve, args=(Raw.of(link),), daemon=True).start()


def _serve(link: Raw) -> None:
    subscriptions: dict[str, int] = {}
    slots: queue.Queue[int] = queue.Queue(_SLOTS)
    for slot in range(_SLOTS):
        slots.put(1 << 32 | slot)
    listed = _list(_SERVICES)
    while (came := link.receive()) is not None:
        kind, at, head, _ = came
        if kind == HELLO:
            link.send(frame(WELCOME, struct.pack("<H", 1), fields(name="evil", run="0" * 16, resume="x", node="1")))
        elif kind == SUBSCRIBE:
            subscriptions[head[1 + head[0] :].decode()] = at
            link.send(frame(OK, flags=NORMAL | ANSWER, id=at))
            if len(subscriptions) == 1:
                threading.Thread(target=_flood, args=(link, subscriptions, slots), daemon=True).start()
        elif kind == CALL and b"$hub.services" in head:
            link.send(frame(REPLY, b"", b"\xc6" + struct.pack(">I", len(listed)) + listed, NORMAL | ANSWER, at))
        elif kind == CALL:
            link.send(frame(REPLY, b"", b"\xc1" * 100, NORMAL | ANSWER, at))
        elif kind in (REPLY, FAIL):
            # The answer to a call of the flood, whose slot is free again.
            slots.put(at + (1 << 32))
        elif kind == PING:
            link.send(frame(PONG, id=at, flags=0))


def _list(count: int) -> bytes:
    """Describe many services that nobody has asked for, and one that is wanted."""
    return b"".join(_entry(f"service-{number}") for number in range(count)) + _entry("billing")


def _entry(service: str) -> bytes:
    info = {"name": service, "description": "", "visibility": "private", "methods": [], "events": []}
    says = fields(service=json.dumps(info | {"instances": ["i"]}))
    pattern = f"svc.{service}.i.*".encode()
    texts = b"".join(struct.pack("<H", len(text)) + text for text in (b"node", b"", pattern))
    return texts + struct.pack("<II", 0, len(says)) + says


def _flood(link: Raw, subscriptions: dict[str, int], slots: queue.Queue[int]) -> None:
    with contextlib.suppress(OSError):
        for number in itertools.count(1):
            entry = _entry(f"more-{number}")
            value = b"\xc6" + struct.pack(">I", len(entry)) + entry
            link.send(frame(PUBLISH, published(b"$hub.services.added"), value))
            for subject, path in itertools.product(_SUBJECTS, ("evil", "good", "", "evil good")):
                extra = fields(**{"tw-hubs": path, "tw-user": "good", "tw-origin": "public"})
                link.send(frame(PUBLISH, published(subject.encode(), extra), b"\xc0"))
                for to in list(subscriptions.values()):
                    head = struct.pack("<IQIBIH", 0, to, 1_000, 0, 0, len(subject)) + subject.encode() + extra
                    link.send(frame(CALL, head, b"\xc0", id=slots.get()))
            time.sleep(0.001)


async def look(target: Target) -> list[str]:
    bank, vault, problems = Bank(), Bank(), []
    async with (
        tw.Node(target.tide, name="bank", token=TOKENS["good"]) as server,
        tw.Node(target.tide, name="payer", token=TOKENS["good"]) as payer,
    ):
        await server.serve(bank, name="bank", instance="real")
        await server.serve(vault, name="vault", instance="real")
        async with asyncio.timeout(30):
            async for change in payer.watch_services("evil:billing"):
                if change.kind == "joined":
                    break
        for _ in range(50):
            if {await payer.client(name).pay() for name in ("bank", "vault")} != {"paid"}:
                problems.append("the bank answers otherwise")
            with contextlib.suppress(tw.TidewireError):
                problems.append(f"it was billed: {await payer.client('evil:billing').pay()}")
        names = {info.name for info in await payer.services()}
    if strangers := (bank.callers - {"good", "evil"}) | (vault.callers - {"good"}):
        problems.append(f"let in: {strangers}")
    if names - {"bank", "vault", "evil:billing"}:
        problems.append(f"{len(names)} services are listed")
    return problems
