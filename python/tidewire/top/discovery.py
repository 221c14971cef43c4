"""Nodes that `tidewire top` can look at: those of a hub, or those of this user on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import tidewire as tw
from tidewire._node.statistics_service import VARIABLE
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


class FoundNode(NamedTuple):
    """A node that can be looked at: the hub where it serves ``$sys``, and the id of its instance
    there. One that is stopped or very busy has no name and process.
    """

    hub: Hub
    key: str
    name: str | None = None
    pid: int | None = None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any]]]]:
        """Join its hub, and yield a function that returns its statistics.

        Raises:
            NodeStopped: if it is gone.
            AskTimeout: if it does not answer in time.
            TidewireError: if this user may not call it, or it could not look at itself.
        """

        async def look() -> dict[str, Any]:
            try:
                seen: dict[str, Any] = await _calls(node, self.key, LOOK_TIMEOUT_S).statistics()
                return seen
            except tw.AskTimeout as error:
                raise _silent(self.key, LOOK_TIMEOUT_S) from error

        try:
            async with self.hub.joined(**_OPTIONS) as node:
                yield look
        except (tw.LinkLost, tw.NoResponders) as error:
            if _is_silent(self.hub, self.key):
                raise _silent(self.key, ABOUT_TIMEOUT_S) from error
            raise tw.NodeStopped(f"{self.key} is gone: the node has stopped, or its process has ended") from error


async def choose(hub: Hub, wanted: str | None) -> FoundNode:
    """Return the node with the wanted name, process id or key; without one, the only node there is.
    A hub without a URL stands for the sockets of this user.

    Raises:
        NoSuchTarget: if there is none, or more than one; the text lists those there are.
        TidewireError: if the hub can't be joined, or others can open the sockets of this user.
    """
    found = await (_find_at(hub) if hub.url else _find_own())
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
    abouts = ("does not answer" if name is None else f"{name!r}, process {pid}" for _, _, name, pid in fits)
    raise tw.NoSuchTarget("\n".join([text, *map("  {0.key}   {1}".format, fits, abouts)]))


async def _find_own() -> list[FoundNode]:
    found: list[FoundNode] = []
    for path in live_sockets():
        hub = Hub(f"tide+unix://{path}", None, False)
        try:
            found += await _find_at(hub)
        except tw.Unauthorized:
            raise
        except tw.TidewireError:
            if _is_silent(hub, path.stem):
                found.append(FoundNode(hub, path.stem))
    return found


async def _find_at(hub: Hub) -> list[FoundNode]:
    found: list[FoundNode] = []
    async with hub.joined(**_OPTIONS) as node:
        keys = [key for info in await node.services() if info.name == SERVICE for key in info.instances]
        for key in keys:
            try:
                about = await _calls(node, key, ABOUT_TIMEOUT_S).about()
                found.append(FoundNode(hub, key, about["node"], about["pid"]))
            except tw.AskTimeout:
                found.append(FoundNode(hub, key))
            except (tw.NoResponders, tw.LinkLost):
                continue  # The node has gone meanwhile.
    return found


def _calls(node: tw.Node, key: str, timeout_s: float) -> Any:
    return node.client(SERVICE).with_(instance=key, timeout=timeout_s)


def _is_silent(hub: Hub, key: str) -> bool:
    """Return whether a process listens at the socket of a node, though it may not answer."""
    path = Path(hub.url.removeprefix("tide+unix://"))
    return path.name == f"{key}.sock" and not is_stale(path)


def _silent(key: str, timeout_s: float) -> tw.AskTimeout:
    return tw.AskTimeout(f"{key} did not answer within {timeout_s:g} s: it is stopped or very busy")
