"""A node announces services of 16 KB and withdraws them, again and again, while eight that follow
what is served read nothing; others come and call.
"""

from __future__ import annotations

import contextlib

import tidewire as tw
from link_frames import SUBSCRIBE, UNSUBSCRIBE, fields, frame, subscribed

from attacks.bank import Bank
from attacks.target import TOKENS, Target, description, drained

ITEM = 3
MEMORY_MIB = 384
"""As for all who don't read: `hub_queue_bytes`, and half as much again for what memory is taken in
blocks.
"""
SERVICES = 8
FOLLOWERS = 8


def attack(target: Target) -> None:
    followers = [target.joined("listener") for _ in range(FOLLOWERS)]
    for one in followers:
        one.send(frame(SUBSCRIBE, subscribed(b"$hub.services.*"), id=1 << 32))
        one.receive()
    link, generation = target.joined(), 1
    drained(link.socket)
    says = [fields(**description("fickle", str(slot), 16_000)) for slot in range(SERVICES)]
    with contextlib.suppress(OSError):
        while True:
            frames = []
            for slot in range(SERVICES):
                exchange = generation << 32 | slot
                frames.append(frame(SUBSCRIBE, subscribed(b"svc.fickle.%d.*" % slot), says[slot], id=exchange))
                frames.append(frame(UNSUBSCRIBE, id=exchange))
            link.socket.sendall(b"".join(frames))
            generation += 1


async def look(target: Target) -> list[str]:
    token = TOKENS["good"]
    async with (
        tw.Node(target.tide, name="bank", token=token) as server,
        tw.Node(target.tide, name="teller", token=token) as caller,
    ):
        await server.serve(Bank(), name="bank")
        answers = {await caller.client("bank").pay() for _ in range(20)}
        listed = {info.name for info in await caller.services()}
    problems = [] if answers == {"paid"} else [f"calls were answered with {answers}"]
    return problems if "bank" in listed else [*problems, f"only {listed} are listed"]
