"""A hub that has joined with the token of a partner forges paths, users, ids and announcements, and
does all of it at once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time

import tidewire as tw
from link_frames import CALL, PUBLISH, SUBSCRIBE, called, fields, frame, hello, published, subscribed

from attacks.bank import Bank
from attacks.target import TOKENS, Target, drained, together

ITEM = 17
MEMORY_MIB = 48
"""Its announcements, and the ids of its messages: 65,536 at most."""
_PATHS = ("rome", "oslo rome", "", "good", "rome good", "rome " * 9 + "rome", "rome rome", "\0", "rome paris")
_SUBJECTS = ("svc.bank.real.pay", "svc.bank.pay", "svc.vault.real.pay", "svc.vault.pay", "agent.buyer", "agent.boss")
_SUBJECTS += ("$hub.services", "$hub.nodes", "$sys.about", "svc.tidewire-streams.call", "$node.1.x", "salaries.may")


def attack(target: Target) -> None:
    together(threading.Thread(target=one, args=(target,)) for one in (_call, _publish))


def _call(target: Target) -> None:
    info = {"description": "", "visibility": "private", "methods": [], "events": [], "instances": ["~rome"]}
    link = target.joined("rome", name="rome", hub="rome")
    drained(link.socket)
    for generation in itertools.count(1):
        ids = itertools.count(generation << 32)
        for path, subject in itertools.product(_PATHS, _SUBJECTS):
            extra = {"tw-hubs": path} | ({"tw-user": "good"} if generation % 2 else {})
            link.send(frame(CALL, called(subject.encode(), fields(**extra)), b"\xc0", id=next(ids)))
        for service in ("rome:pricing", "bank", "vault", "~", "rome:"):
            says = fields(service=json.dumps({"name": service, **info}))
            link.send(frame(SUBSCRIBE, subscribed(f"svc.{service}.~rome.*".encode()), says, id=next(ids)))
        time.sleep(0.02)


def _publish(target: Target) -> None:
    while True:
        link = target.raw()
        link.send(hello(token=TOKENS["rome2"], name="rome2", hub="rome2"))
        link.receive()
        for number, (path, subject) in enumerate(itertools.product(_PATHS, ("news.a", "salaries.may", "agent.buyer"))):
            extra = fields(**{"tw-hubs": path, "tw-message": f"{'0' * 16}-{number:x}"})
            link.send(frame(PUBLISH, published(subject.encode(), extra), b"\xc0"))
        link.close()
        time.sleep(0.005)


async def look(target: Target) -> list[str]:
    bank, vault, problems = Bank(), Bank(), []
    senders: set[str] = set()
    async with (
        tw.Node(target.tide, name="bank", token=TOKENS["good"]) as server,
        tw.Node(target.tide, name="payer", token=TOKENS["good"]) as payer,
    ):

        async def buy(_: object, message: tw.Message) -> None:
            senders.add(message.sender)

        await server.serve(bank, name="bank", instance="real")
        await server.serve(vault, name="vault", instance="real")
        server.agent(buy, id="boss")
        async with payer.subscription("salaries.*") as salaries:
            until = time.monotonic() + 20
            while "rome" not in bank.callers and time.monotonic() < until:
                if {await payer.client(name).pay() for name in ("bank", "vault")} != {"paid"}:
                    problems.append("the bank answers otherwise")
            payer.publish("salaries.june", 1)
            salary = await asyncio.wait_for(anext(salaries), 20)
            if salary.subject != "salaries.june":
                problems.append(f"{salary.subject} was published")
        names = {info.name for info in await payer.services()}
    if "rome" not in bank.callers:
        problems.append("no call of the partner came")
    if (strangers := bank.callers - {"good", "rome"}) or (strangers := vault.callers - {"good"}):
        problems.append(f"let in: {strangers}")
    if senders or names & {"~", "rome:"}:
        problems.append(f"senders {senders} or services {names} are forged")
    return problems
