"""Nodes for `tidewire top`: the nodes of a hub, or of this user on this machine."""

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
STATISTICS_TIMEOUT_S = 5.0
# A node that stops quickly, even without the hub.
_OPTIONS: dict[str, Any] = {
    "config": {"links": {"link_greeting_ms": int(ABOUT_TIMEOUT_S * 1_000)}, "stop_timeout_ms": 200},
    "inspect": False,
}


class FoundNode(NamedTuple):
    """A node that can be inspected: the hub where it serves ``$sys``, and its instance id there. A
    stopped or very busy node has no name and process id.
    """

    hub: Hub
    key: str
    name: str | None = None
    pid: int | None = None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any]]]]:
        """Join its hub, and yield a function that returns its statistics.

        Raises:
            NodeStopped: if the node has stopped.
            AskTimeout: if it does not reply in time.
            TidewireError: if this user may not call it, or it could not read its statistics.
        """

        async def read_sample() -> dict[str, Any]:
            try:
                statistics: dict[str, Any] = await _calls(node, self.key, STATISTICS_TIMEOUT_S).statistics()
                return statistics
            except tw.AskTimeout as error:
                raise _no_reply(self.key, STATISTICS_TIMEOUT_S) from error

        try:
            async with self.hub.joined(**_OPTIONS) as node:
                yield read_sample
        except (tw.LinkLost, tw.NoResponders) as error:
            if _is_unresponsive(self.hub, self.key):
                raise _no_reply(self.key, ABOUT_TIMEOUT_S) from error
            raise tw.NodeStopped(f"{self.key} is gone: the node has stopped, or its process has ended") from error


async def choose(hub: Hub, selector: str | None) -> FoundNode:
    """Return the node with this name, process id or key; with None, the only node. For a hub
    without a URL, search the sockets of this user.

    Raises:
        NoSuchTarget: if there is no such node, or more than one; the message lists all nodes.
        TidewireError: if the hub can't be joined, or others can open the sockets of this user.
    """
    nodes = await (_find_at(hub) if hub.url else _find_own())
    matches = [one for one in nodes if selector is None or selector in (one.name, str(one.pid), one.key)]
    matches = [one for one in matches if one.key == selector] or matches
    if len(matches) == 1:
        return matches[0]
    label = "" if selector is None else f"node: {selector!r}"
    if matches:
        several = f"node: {len(matches)} nodes are called {selector!r}" if label else f"{len(matches)} nodes run"
        text = f"{several}: choose one with --node and the text in front:"
    elif nodes and label:
        matches, text = nodes, f"{label} is not among the nodes that can be looked at:"
    else:
        none = f"{label} can't be looked at" if label else "no node can be looked at"
        text = f"{none}: enable it with tw.Node(inspect=True), or start the program with {VARIABLE}=1"
    abouts = ("does not answer" if name is None else f"{name!r}, process {pid}" for _, _, name, pid in matches)
    raise tw.NoSuchTarget("\n".join([text, *map("  {0.key}   {1}".format, matches, abouts)]))


async def _find_own() -> list[FoundNode]:
    nodes: list[FoundNode] = []
    for path in live_sockets():
        hub = Hub(f"tide+unix://{path}", None, False)
        try:
            nodes += await _find_at(hub)
        except tw.Unauthorized:
            raise
        except tw.TidewireError:
            if _is_unresponsive(hub, path.stem):
                nodes.append(FoundNode(hub, path.stem))
    return nodes


async def _find_at(hub: Hub) -> list[FoundNode]:
    nodes: list[FoundNode] = []
    async with hub.joined(**_OPTIONS) as node:
        keys = [key for info in await node.services() if info.name == SERVICE for key in info.instances]
        for key in keys:
            try:
                about = await _calls(node, key, ABOUT_TIMEOUT_S).about()
                nodes.append(FoundNode(hub, key, about["node"], about["pid"]))
            except tw.AskTimeout:
                nodes.append(FoundNode(hub, key))
            except (tw.NoResponders, tw.LinkLost):
                continue  # The node has left meanwhile.
    return nodes


def _calls(node: tw.Node, key: str, timeout_s: float) -> Any:
    return node.client(SERVICE).with_(instance=key, timeout=timeout_s)


def _is_unresponsive(hub: Hub, key: str) -> bool:
    """Return whether a process listens at the socket of a node, even if it does not reply."""
    path = Path(hub.url.removeprefix("tide+unix://"))
    return path.name == f"{key}.sock" and not is_stale(path)


def _no_reply(key: str, timeout_s: float) -> tw.AskTimeout:
    return tw.AskTimeout(f"{key} did not answer within {timeout_s:g} s: it is stopped or very busy")
