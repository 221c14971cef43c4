"""Statistics service of a node: the switch, and the light part that is always loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidewire.errors import ConfigError, InvalidArgument

if TYPE_CHECKING:
    from tidewire.node import Node
    from tidewire.top.service import StatisticsService

VARIABLE = "TIDEWIRE_INSPECT"
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")


def wanted(inspect: object, environment: Mapping[str, str] | None) -> bool:
    """Return whether a node is to serve its statistics, for ``tidewire top``.

    Raises:
        InvalidArgument: if ``inspect`` is neither a bool nor None.
        ConfigError: if it is None, and the environment variable says neither yes nor no.
    """
    if inspect is None:
        return _switch((os.environ if environment is None else environment).get(VARIABLE, "off"))
    if not isinstance(inspect, bool):
        raise InvalidArgument(
            f"inspect: {inspect!r} is not allowed: give True, False, or None for what {VARIABLE} says in the environment"
        )
    return inspect


def open_for(node: Node) -> StatisticsService:
    """Serve the statistics of a node, at a socket of its own, too.

    Raises:
        ConfigError: if there is no place for the socket that only this user can open.
    """
    # Links are loaded only by programs that use them, or want to be looked at.
    from tidewire.top.service import StatisticsService

    return StatisticsService(node)


def agents(node: Node) -> list[dict[str, Any]]:
    """Return the statistics of all live agents of a node. Where there are none, the package stays
    unloaded.
    """
    return [] if node._agents is None else [agent.statistics() for agent in node._agents]


def pools() -> list[dict[str, Any]]:
    """Return the statistics of all pools of this process that a node made, or that have started,
    and that have not stopped, in the order of their names.
    """
    module = sys.modules.get("tidewire.pools.pool")
    if module is None:
        return []
    live = [pool for pool in _settled(getattr(module, "_live", ())) if pool.state != "stopped"]
    rows = [{"capacity": pool._options.capacity, **pool.statistics()} for pool in live]
    return sorted(rows, key=lambda row: str(row["name"]))


def services(node: Node) -> list[dict[str, Any]]:
    """Return the statistics of what a node serves, by name and instance. Where there is nothing,
    the package stays unloaded.
    """
    module = sys.modules.get("tidewire.services.registry")
    rows = [] if module is None else [served.statistics() for served in module.registry_of(node).served()]
    return sorted(rows, key=lambda row: (row["service"], row["instance"]))


def remote(node: Node) -> dict[str, int]:
    """Return how many functions and objects a node has given to others, and how many it has of
    them.
    """
    objects = None if node._connection is None else node._connection._objects
    return {"given": 0, "held": 0} if objects is None else objects.statistics()


def links(node: Node) -> dict[str, Any]:
    """Return the hub that a node is joined to at present, how many nodes have joined here, and how
    many instances of services it can reach.

    While it is joined, also what the link has counted, and what the hub has that it is.
    """
    connection = node._connection
    module = sys.modules.get("tidewire.services.registry")
    is_current = connection is not None and connection.is_current
    found: dict[str, Any] = {
        "hub": None if connection is None else connection.hub_name,
        "nodes": 0 if connection is None else connection.nodes,
        "services": {} if module is None else module.registry_of(node).counts(is_current),
    }
    if connection is not None and connection.is_joined:
        found["dropped"] = connection.link.dropped
        found["laid"] = connection.link.laid
        found["skipped"] = connection.skipped
        if connection.hub is not None:
            found["of_hub"] = connection.hub.statistics()
    return found


def _settled(live: Any) -> list[Any]:
    while True:
        try:
            return list(live)
        except RuntimeError:
            # Another thread has started a pool meanwhile.
            continue


def _switch(value: str) -> bool:
    word = value.strip().lower()
    if word not in _ON + _OFF:
        text = f"{VARIABLE}: {value!r} is not allowed: use {', '.join(_ON)} or {', '.join(_OFF)}"
        raise ConfigError(text, problems=[text])
    return word in _ON
