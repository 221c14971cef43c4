"""A hub, a node that serves and one that calls, in one process and each with a link of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import tidewire as tw
from link_frames import (
    ANSWER,
    CALL,
    ERROR,
    FAIL,
    GOODBYE,
    ID,
    NORMAL,
    REPLY,
    SUBSCRIBE,
    Raw,
    called,
    fields,
    frame,
    subscribed,
)
from tidewire.values import decode, encode

PATIENCE_S = 30.0
REMOTE_ERROR = 15


class World:
    def __init__(self, hub: tw.Node, url: str, server: tw.Node, caller: tw.Node) -> None:
        self.hub = hub
        self.url = url
        self.server = server
        self.caller = caller

    @contextlib.asynccontextmanager
    async def node(self, name: str) -> AsyncIterator[tw.Node]:
        async with tw.Node(self.url, name=name) as node:
            yield node


def counts(node: tw.Node) -> tuple[int, int]:
    """Return how many objects a node has given, and holds."""
    found = node.statistics()["remote"]
    return found["given"], found["held"]


async def has(node: tw.Node, given: int, held: int) -> None:
    """Wait until a node has given so many objects, and holds so many."""
    await node.until(lambda now: now["remote"] == {"given": given, "held": held}, PATIENCE_S)


async def let_go(*nodes: tw.Node) -> None:
    """Wait until nodes have given nothing, and hold nothing."""
    for node in nodes:
        await has(node, 0, 0)


class Stranger:
    """An instance "stranger" of the desk, on a link whose frames a story writes by hand."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._calls = itertools.count(1)

    @classmethod
    async def join(cls, world: World, instance: str = "stranger") -> Stranger:
        """Join, and wait until the caller knows the instance."""
        await world.caller.until(lambda now: "desk" in now["links"]["services"], PATIENCE_S)
        (info,) = [info for info in await world.caller.services() if info.name == "desk"]
        says = json.dumps(info.to_dict() | {"instances": [instance], "details": []})
        raw = await asyncio.to_thread(Raw.joined, world.url)
        raw.send(frame(SUBSCRIBE, subscribed(f"svc.desk.{instance}.*".encode()), fields(service=says), id=ID))
        await world.caller.until(lambda now: now["links"]["services"]["desk"] > len(info.instances), PATIENCE_S)
        return cls(raw)

    async def came(self) -> tuple[int, Any]:
        """Wait for a call, and return its exchange and its arguments, with references as data."""
        _, _, exchange, payload = await self._next(CALL)
        return exchange, decode(payload, lambda reference: reference)

    def answer(self, exchange: int, value: object) -> None:
        """Answer a call. A ``Reference`` in the value is sent as one."""
        self._raw.send(frame(REPLY, b"", encode(value, _sent), NORMAL | ANSWER, exchange))

    async def say_goodbye(self) -> None:
        """Take no new calls, and wait until the hub knows that."""
        self._raw.send(frame(GOODBYE, flags=0))
        assert await asyncio.to_thread(self._raw.is_alive)

    async def call(self, subject: str, value: object) -> Any:
        """Call, and return the value of the answer, or the text of an error."""
        self._raw.send(
            frame(CALL, called(subject.encode(), deadline_ms=30_000), encode(value, _sent), id=ID | next(self._calls))
        )
        kind, head, _, payload = await self._next(REPLY, FAIL)
        if kind == FAIL and head != struct.pack("<H", REMOTE_ERROR):
            return payload.decode()
        return decode(payload) if kind == REPLY else str(decode(payload))

    def leave(self) -> None:
        self._raw.close()

    async def _next(self, *kinds: int) -> tuple[int, bytes, int, bytes]:
        while (found := await asyncio.to_thread(self._raw.receive)) is not None:
            kind, exchange, head, payload = found
            if kind in kinds:
                return kind, head, exchange, payload
            assert kind != ERROR, payload
        raise AssertionError("the hub has closed the link")


class Reference:
    """A reference to a function or an object, as a stranger writes it."""

    def __init__(self, written: Any) -> None:
        self.written = written


def _sent(value: object) -> Any:
    return value.written if isinstance(value, Reference) else None


@contextlib.asynccontextmanager
async def desk_nodes(service: Any) -> AsyncIterator[World]:
    """Nodes of which one serves something as "desk"."""
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="server") as server, tw.Node(url, name="caller") as caller:
            await server.serve(service, name="desk")
            yield World(hub, url, server, caller)
