"""Nodes announce services and agents that they are not, in all wrong forms: one may do nothing, one
everything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import tidewire as tw
from link_frames import SUBSCRIBE, fields, frame, subscribed

from attacks.bank import Bank
from attacks.target import TOKENS, Target, drained

ITEM = 2
MEMORY_MIB = 32

_METHOD = {"name": "pay", "description": "", "parameters": {}, "result": {}, "stream": False, "idempotent": False}
_METHOD |= {"timeout": None, "visibility": "private", "notes": []}


def forgeries(number: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Give patterns, and what is said there."""
    info = {"name": "bank", "description": "", "visibility": "private", "methods": [_METHOD], "events": []}
    places = ("svc.bank.forged.*", f"$node.{number}.>", "$hub.services.x", "svc.other.forged.*", "agent.forged", ">")
    wrong = [
        info,
        info | {"instances": ["forged"]},
        info | {"instances": ["forged", "real"]},
        info | {"instances": "forged"},
        info | {"instances": ["forged"], "name": 7},
        info | {"instances": ["forged"], "name": "a.b"},
        info | {"instances": ["forged"], "methods": None},
        info | {"instances": ["forged"], "methods": [_METHOD | {"name": "__class__"}, _METHOD | {"name": 5}]},
        info | {"instances": ["forged"], "methods": [_METHOD | {"timeout": "soon"}]},
        info | {"instances": ["forged"], "methods": [_METHOD | {"visibility": "all"}]},
        info | {"instances": ["forged"], "methods": [_METHOD, _METHOD]},
        info | {"instances": ["real"]},
        [],
        None,
    ]
    texts = [json.dumps(one) for one in wrong] + ["", "{", "[" * 5_000, "\0", '{"name": NaN}']
    for place in places:
        for text in texts:
            yield place, {"service": text}
            yield place, {"agent": text}
    for text in ('{"id": "forged", "type": 1, "capabilities": []}', '{"id": "real", "type": "a", "capabilities": []}'):
        yield "agent.forged", {"agent": text}


def attack(target: Target) -> None:
    links = [target.joined("none"), target.joined("all")]
    for link in links:
        drained(link.socket)
    generation = 1
    while True:
        for slot, (pattern, says) in enumerate(forgeries(generation)):
            frames = frame(SUBSCRIBE, subscribed(pattern.encode()), fields(**says), id=generation << 32 | slot)
            for link in links:
                link.send(frames)
        generation += 1
        time.sleep(0.05)


async def look(target: Target) -> list[str]:
    problems = []
    token = TOKENS["good"]
    async with tw.Node(target.tide, name="bank", token=token) as server:
        await server.serve(Bank(), name="bank", instance="real")
        for number in range(3):
            async with tw.Node(target.tide, name=f"teller-{number}", token=token) as node:
                answers = {await node.client("bank").with_(instance="real").pay() for _ in range(20)}
                if answers != {"paid"}:
                    problems.append(f"calls were answered with {answers}")
    return problems
