"""Homes of durable things for stories: a folder, a hub that has one, a NATS server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from server_keeper import Keeper

PATIENCE = 60.0

every_home = pytest.mark.parametrize("kind", ["folder", "hub", "nats"])
both = pytest.mark.parametrize("home", ["folder", "hub"], indirect=True)


@contextmanager
def nats_server() -> Iterator[str]:
    """A server for one story, by its URL."""
    with Keeper("nats") as keeper:
        yield keeper.url


@asynccontextmanager
async def nodes(kind: str, folder: Path, count: int = 2, **options: Any) -> AsyncIterator[list[tw.Node]]:
    """Nodes with the same streams: of a folder it is one, as often as it was asked for."""
    if kind == "folder":
        async with tw.Node(data=folder, **options) as node:
            yield [node] * count
    elif kind == "hub":
        async with tw.Node(data=folder) as hub, _all(hub.listen("tide://127.0.0.1:0").url, count, options) as found:
            yield found
    else:
        with nats_server() as url:
            async with _all(url, count, options) as found:
                yield found


@asynccontextmanager
async def home(kind: str, folder: Path) -> AsyncIterator[tw.Node]:
    async with nodes(kind, folder, 1) as (node,):
        yield node


async def release(node: tw.Node, lease: str, fence: int) -> bool:
    """Take a lease from its holder, as if the holder had stood still for longer than its time. No
    public call does that.
    """
    return bool(await node._home().call("release", lease, fence))


@asynccontextmanager
async def _all(url: str, count: int, options: dict[str, Any]) -> AsyncIterator[list[tw.Node]]:
    if not count:
        yield []
        return
    async with tw.Node(url, **options) as node, _all(url, count - 1, options) as others:
        yield [node, *others]
