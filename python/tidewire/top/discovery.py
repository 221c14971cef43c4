"""Nodes that `tidewire top` can look at: those of a hub, or those of this user on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tidewire as tw
from tidewire._inspect import VARIABLE
from tidewire.commands.talk import Hub
from tidewire.top.service import SERVICE
from tidewire.top.sockets import is_stale, live_sockets

ABOUT_TIMEOUT_S = 2.0
LOOK_TIMEOUT_S = 5.0
# A node that ends at once, whatever becomes of the hub.
_OPTIONS: dict[str, Any] = {
    "config": {"links": {"link_greeting_ms": int(ABOUT_TIMEOUT_S * 1_000)}, "stop_timeout_ms": 200},
    "inspect": False,
}


@dataclass(frozen=True)
class FoundNode:
    """A node that can be looked at. One that is stopped or very busy has no name, only its key.

    Attributes:
        hub: The hub where it serves ``$sys``: one of a cluster, or the socket of the node.
        key: Unique key of the node at the hub: the id of its instance of ``$sys``.
        name: Its name.
        pid: Its process.
    """

    hub: Hub
    key: str
    name: str | None = None
    pid: int | None = None

    def __str__(self) -> str:
        about = "does not answer" if self.name is None else f"{self.name!r}, process {self.pid}"
        return f"  {self.key}   {about}"

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any]]]]:
        """Join its hub, and yield a function that returns its statistics.

        Raises:
            NodeStopped: if it is gone.
            AskTimeout: if it does not answer in time.
            Unauthorized: if this user may not call it.
            TidewireError: if it could not look at itself.
        """
        silent = tw.AskTimeout(f"{self.key} did not answer within {LOOK_TIMEOUT_S:g} s: it is stopped or very busy")

        async def look() -> dict[str, Any]:
            try:
                seen: dict[str, Any] = await _calls(node, self.key, LOOK_TIMEOUT_S).statistics()
                return seen
            except tw.AskTimeout as error:
                raise silent from error

        try:
            async with self.hub.joined(**_OPTIONS) as node:
                yield look
        except (tw.LinkLost, tw.NoResponders) as error:
            if _is_silent(self.hub):
                raise silent from error
            raise tw.NodeStopped(f"{self.key} is gone: the node has stopped, or its process has ended") from error


async def choose(hub: Hub, wanted: str | None) -> FoundNode:
    """Return the node with a name, process id or key, of a hub or of this user; without one, the
    only node there is.

    Args:
        hub: The hub. One without a URL stands for the sockets of this user.
        wanted: The name, process id or key.

    Raises:
        NoSuchTarget: if there is none, or more than one; the text lists those there are.
        Unauthorized: if others can open the sockets of this user.
        TidewireError: if the hub can't be joined.
    """
    found = await find_at(hub) if hub.url else await find_own()
    fits = [one for one in found if wanted is None or wanted in (one.name, str(one.pid), one.key)]
    fits = [one for one in fits if one.key == wanted] or fits
    if len(fits) == 1:
        return fits[0]
    named = "" if wanted is None else f"node: {wanted!r}"
    if fits:
        several = f"node: {len(fits)} nodes are called {wanted!r}" if named else f"{len(fits)} nodes run"
        text = f"{several}: choose one with --node and the text in front:"
    elif found and named:
        fits, text = found, f"{named} is not among the nodes that can be looked at:"
    else:
        none = f"{named} can't be looked at" if named else "no node can be looked at"
        text = f"{none}: enable it with tw.Node(inspect=True), or start the program with {VARIABLE}=1"
    raise tw.NoSuchTarget("\n".join([text, *map(str, fits)]))


async def find_own() -> list[FoundNode]:
    """Return the nodes of this user on this machine.

    Raises:
        Unauthorized: if others can open a directory or a socket.
    """
    found: list[FoundNode] = []
    for path in live_sockets():
        hub = Hub(f"tide+unix://{path}", None, False)
        try:
            found += await find_at(hub)
        except tw.Unauthorized:
            raise
        except tw.TidewireError:
            if _is_silent(hub):
                found.append(FoundNode(hub, path.stem))
    return found


async def find_at(hub: Hub) -> list[FoundNode]:
    """Return the nodes of a hub.

    Raises:
        TidewireError: if it can't be joined.
    """
    found: list[FoundNode] = []
    async with hub.joined(**_OPTIONS) as node:
        keys = [key for info in await node.services() if info.name == SERVICE for key in info.instances]
        for one in (FoundNode(hub, key) for key in keys):
            try:
                about = await _calls(node, one.key, ABOUT_TIMEOUT_S).about()
                found.append(replace(one, name=about["node"], pid=about["pid"]))
            except tw.AskTimeout:
                found.append(one)
            except (tw.NoResponders, tw.LinkLost):
                # The node has gone meanwhile.
                continue
    return found


def _calls(node: tw.Node, key: str, timeout_s: float) -> Any:
    return node.client(SERVICE).with_(instance=key, timeout=timeout_s)


def _is_silent(hub: Hub) -> bool:
    """Return whether a process listens at the socket of a node, though it may not answer."""
    _, is_socket, path = hub.url.partition("tide+unix://")
    return bool(is_socket) and not is_stale(Path(path))
