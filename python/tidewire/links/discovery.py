"""Directory of the services of other nodes, as the hub announces them."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from tidewire._binding import Directory
from tidewire._log import log
from tidewire._runtime import steps
from tidewire.errors import LinkLost, TidewireError
from tidewire.links import announcements
from tidewire.links.remote import RemotePort
from tidewire.services.registry import registry_of

if TYPE_CHECKING:
    from tidewire._binding import Pending, RemoteMessage
    from tidewire._runtime.steps import Steps
    from tidewire.links.connection import Connection

CHANGES = "$hub.services.*"
"""Subjects on which the hub announces added and removed services."""

_LIST = "$hub.services"
_NODES = "$hub.nodes"
_MISSED = "$hub.services.missed"
_TIMEOUT_S = 5.0


class Discovery:
    """The services of other nodes that the hub has announced.

    Attributes:
        epoch: The ``epoch`` of the link with the complete list; None before.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.epoch: int | None = None
        self.reader = announcements.Reader(connection.node.name)
        self._directory = Directory()
        # Threads apply changes in the order of the directory.
        self._lock = threading.RLock()

    def refresh(self, within_s: float = math.inf) -> Steps[None]:
        """Request the services of the hub, and register them."""
        number, epoch = self._directory.ask(), self._connection.link.epoch
        try:
            self._apply_list(number, (yield self._request_list(within_s)))
            self.is_complete(epoch)
        finally:
            self._directory.give_up(number)

    async def nodes(self) -> list[announcements.NodeInfo]:
        """Request the nodes of the hub."""
        connection = self._connection
        listed = connection.link.call(connection.node._engine, _NODES, None, _TIMEOUT_S)
        return list(announcements.nodes(await listed))

    def is_complete(self, epoch: int | None = None) -> None:
        """Record that the list of a link is complete; without an epoch, of the current link."""
        self.epoch = self._connection.link.epoch if epoch is None else epoch
        self._connection.tell()

    async def renew(self) -> None:
        """Refresh the list after a link loss, during which the hub announced nothing."""
        try:
            await steps.awaited(self.refresh())
        except LinkLost:
            # The link was lost again: the next one refreshes.
            return
        except TidewireError as error:
            text = "%(node)s: the services of the hub could not be listed: %(error)s"
            log.warning("link.services_not_listed", text, node=self._connection.node.name, error=error)

    def changed(self, message: RemoteMessage) -> None:
        """Handle the announcement of an added or removed service."""
        if message.node:
            # Only messages of the hub itself have no node name.
            text = "node %(peer)r lists services in the place of the hub, and is not believed"
            log.warning("link.announcement_refused", text, node=self._connection.node.name, peer=message.node)
            return
        if message.subject == _MISSED:
            self._connection.renew()
            return
        changed = message.value()
        with self._lock:
            self._apply(self._directory.changed(changed, message.subject.endswith(".added")))

    def _request_list(self, within_s: float) -> Pending:
        connection = self._connection
        return connection.link.call(connection.node._engine, _LIST, None, min(within_s, _TIMEOUT_S))

    def _apply_list(self, number: int, reply: bytes) -> None:
        with self._lock:
            self._apply(self._directory.listed(number, reply))
        # Wake the callers that wait for an instance.
        registry_of(self._connection.node).change_counter.ring()

    def _apply(self, updates: list[tuple[bool, str, str, str, str]]) -> None:
        for is_added, *one in updates:
            entry = announcements.Announcement(*one)
            info = self.reader.decode(entry)
            if info is not None and not is_added:
                self._remove(info)
            elif info is None or not self._add(entry, info):
                self._directory.forget(entry.pattern)

    def _add(self, entry: announcements.Announcement, info: announcements.AnnouncedInfo) -> bool:
        """Register a new instance. Return False if it is not needed."""
        node = self._connection.node
        if entry.node == node.name:
            return False
        if isinstance(info, announcements.AgentInfo):
            return self._connection.agents.add(info, entry.node)
        registry = registry_of(node)
        group = registry.find(info.name)
        if group is not None and info.instances[0] in group.ports:
            return False
        try:
            registry.add(RemotePort(self._connection, info, entry.node))
        except TidewireError as error:
            self.reader.skip(entry, f"it can't be called from here: {error}")
            return False
        return True

    def _remove(self, info: announcements.AnnouncedInfo) -> None:
        if isinstance(info, announcements.AgentInfo):
            self._connection.agents.remove(info.id)
            return
        registry = registry_of(self._connection.node)
        group = registry.find(info.name)
        # An instance of this node stays, regardless of the hub.
        if group is not None and isinstance(group.ports.get(info.instances[0]), RemotePort):
            registry.remove(info.name, info.instances[0])
