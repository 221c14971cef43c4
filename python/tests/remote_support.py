"""A hub, a node that serves and one that calls, in one process and each with a link of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import tidewire as tw

PATIENCE_S = 30.0
Story = Callable[["World"], Coroutine[Any, Any, None]]


class World:
    """The nodes of a story."""

    def __init__(self, hub: tw.Node, url: str, server: tw.Node, caller: tw.Node) -> None:
        self.hub = hub
        self.url = url
        self.server = server
        self.caller = caller

    @contextlib.asynccontextmanager
    async def node(self, name: str) -> AsyncIterator[tw.Node]:
        """One more node."""
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


def play(service: Any, story: Story) -> None:
    """Serve something as "desk", and run a story. Afterwards nobody has given or holds anything,
    unless a link was lost.
    """

    async def main() -> None:
        async with tw.Node(name="hub") as hub:
            url = hub.listen("tide://127.0.0.1:0").url
            async with tw.Node(url, name="server") as server, tw.Node(url, name="caller") as caller:
                await server.serve(service, name="desk")
                await asyncio.wait_for(story(World(hub, url, server, caller)), PATIENCE_S)

    asyncio.run(main())
