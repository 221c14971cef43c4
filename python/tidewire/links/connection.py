"""The link of one node: to the hub that it joined, or to the one that it is."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidewire import _limits
from tidewire._binding import Hub, Link
from tidewire._log import logger
from tidewire.errors import InvalidArgument, LinkLost, NodeStopped, TidewireError
from tidewire.links import known
from tidewire.links.addresses import check_open
from tidewire.links.porter import Porter
from tidewire.links.remote import RemotePort
from tidewire.links.subjects import Share
from tidewire.services.registry import registry_of

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, LinkSubscription, Listening, Pending, RemoteCall, RemoteMessage
    from tidewire.node import Node
    from tidewire.services.host import Host

_Target = Callable[[Any], None]
_CHANGES = "$hub.services.*"
_LIST = "$hub.services"
_TIMEOUT_S = 5.0


class Connection:
    """What a node says to its hub, and hears from it.

    Attributes:
        node: The node.
        hub: The hub, if this node is it.
    """

    def __init__(self, node: Node) -> None:
        self._node = weakref.ref(node)
        self.hub: Hub | None = None
        self._link: Link | None = None
        self._numbers = itertools.count(1)
        self._targets: dict[int, _Target] = {}
        self._patterns: dict[int, str] = {}
        self._kept: dict[int, LinkSubscription] = {}
        # A place is open for as long as somebody holds it, and that need not be the user.
        self._listening: list[Listening] = []
        # A place is open until it is closed or the node ends, whether or not anybody holds its listener.
        self._places: list[Listening] = []
        # Instances of which something was told while a list was under way: that is newer than the list.
        self._newer: set[str] | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def node(self) -> Node:
        """The node."""
        node = self._node()
        if node is None:
            raise NodeStopped("node: it is gone: keep it for as long as its link is used")
        return node

    @property
    def link(self) -> Link:
        """The link.

        Raises:
            LinkLost: if the node has joined nobody.
        """
        if self._link is None:
            raise LinkLost(f"{self.node.name}: this node is joined to no hub: give its URL, or call listen()")
        return self._link

    @property
    def is_joined(self) -> bool:
        """Whether there is a link."""
        return self._link is not None

    @property
    def open_calls(self) -> int:
        """Calls that pass through this node as a hub and are not answered yet."""
        return 0 if self.hub is None else self.hub.open_calls

    # Joining and listening

    def join(self, url: str, token: str | None) -> None:
        """Join a hub, and block until it has taken this node in.

        Raises:
            LinkLost: if nobody listens there.
            Unauthorized: if the hub does not accept the token.
            NameTaken: if a node of this name has joined already.
            VersionMismatch: if the hub speaks another version.
        """
        node = self.node
        self._link = Link.join(url, node.name, token, _limits.LINK_HEARTBEAT_MS.default, _log(node.name))

    def listen(self, url: str, tokens: list[Any], insecure: bool) -> Listening:
        """Become a hub, or open one more place where others can join.

        Raises:
            InvalidArgument: if the node has joined another hub, or the URL is not one to listen at.
            Unauthorized: if other machines could reach it without a token.
            ConfigError: if the place is taken.
        """
        node = self.node
        if self.hub is None and self._link is not None:
            raise InvalidArgument(
                f"listen: {node.name} has joined the hub at {node.url}: only one that has not can be a hub"
            )
        check_open(url, bool(tokens), insecure)
        if self.hub is None:
            hub = Hub(node.name, tokens, _limits.LINK_HEARTBEAT_MS.default, _log(node.name))
            listening = hub.listen(url)
            self._listening.append(listening)
            self._link = hub.join(node.name, tokens[0][0] if tokens else None)
            self.hub = hub
            self._open()
            self._serve_all()
            node._share_all()
            return listening
        self._listening.append(self.hub.listen(url))
        return self._listening[-1]

    async def open(self) -> None:
        """Take in what comes, and learn what others serve."""
        await self._open()
        await self.refresh()

    def open_blocking(self) -> None:
        """As ``open``, and block this thread."""
        self._open().wait()
        self.refresh_blocking()

    def _open(self) -> Pending:
        link = self.link
        self.node._on_loop(lambda bridge: link.deliver_to(bridge, self._receive))
        return self.subscribe(_CHANGES, "", None, self._changed)

    def _listed(self) -> Pending:
        return self.link.call(self.node._engine, _LIST, None, _TIMEOUT_S)

    async def refresh(self) -> None:
        """Ask the hub what is served, and note it."""
        self._newer = set()
        self._note(await self._listed())

    def refresh_blocking(self) -> None:
        """As ``refresh``, and block this thread."""
        self._newer = set()
        self._note(self._listed().wait())

    async def _renew(self) -> None:
        """Learn what came and went while the link was lost: nobody told of it."""
        try:
            await self.refresh()
        except LinkLost:
            # It was lost again, and is looked at again when it is back.
            return
        except TidewireError as error:
            logger.warning("%s: the services of the hub could not be listed: %s", self.node.name, error)

    def _note(self, listed: bytes) -> None:
        newer, self._newer = self._newer or set(), None
        found = {instance: entry for entry in known.entries(listed) for instance in _instances(entry)}
        registry = registry_of(self.node)
        for port in self._remote_ports():
            if port.instance not in found and port.instance not in newer:
                registry.remove(port.info.name, port.instance)
        for instance, entry in found.items():
            if instance not in newer:
                self._add(entry)

    def _remote_ports(self) -> list[RemotePort]:
        registry = registry_of(self.node)
        groups = filter(None, [registry.find(info.name) for info in registry.infos()])
        return [port for group in groups for port in group.ports.values() if isinstance(port, RemotePort)]

    def _serve_all(self) -> None:
        for served in registry_of(self.node).served():
            served._join(self)

    def close(self) -> None:
        """End the link. What others had open here fails."""
        for listening in self._listening:
            listening.close()
        link, self._link = self._link, None
        self._close_places()
        if self._renewing is not None:
            self._renewing.cancel()
        self._targets.clear()
        if link is not None:
            link.close()
        self.hub = None

    def _close_places(self) -> None:
        for place in self._places:
            place.close()
        self._places.clear()

    def goodbye(self) -> None:
        """Take no new calls: the node is about to stop."""
        if self.hub is not None:
            self.hub.goodbye()
        if self._link is not None:
            self._link.goodbye()

    # What comes in

    def subscribe(self, pattern: str, queue: str, says: dict[str, str] | None, target: _Target) -> Pending:
        """Have what comes on a pattern handed to a function on the loop. The pending is done when the hub has it."""
        number = next(self._numbers)
        self._targets[number] = target
        self._patterns[number] = pattern
        subscription, pending = self.link.subscribe(pattern, queue, says, number)
        self._kept[number] = subscription
        return pending

    def unsubscribe(self, target: _Target) -> None:
        """End what was subscribed for a function."""
        for number in [number for number, other in self._targets.items() if other is target]:
            self._end(number)

    def _end(self, number: int) -> None:
        self._targets.pop(number, None)
        self._patterns.pop(number, None)
        subscription = self._kept.pop(number, None)
        if subscription is not None:
            subscription.close()

    def _receive(self, came: list[tuple[int, RemoteCall | RemoteMessage | None]]) -> None:
        for number, what in came:
            if what is None:
                self._renewing = asyncio.get_running_loop().create_task(self._renew())
                continue
            target = self._targets.get(number)
            if target is None:
                continue
            try:
                target(what)
            # One that can't be handed in must not take the others of its burst along.
            except Exception as error:  # noqa: BLE001
                logger.error("%r could not be taken in: %s", what, error, exc_info=error)

    # Subjects

    def share(self, actor: ActorRef, pattern: str, queue: str | None) -> Share:
        """Have what other nodes publish on a pattern, and ask on it, go to an actor of this node."""
        share = Share(self.node._engine, actor, self.unsubscribe)
        self.subscribe(pattern, queue or "", None, share)
        return share

    def keep_shared(self, actor: ActorRef, patterns: list[str]) -> None:
        """End what is shared for an actor, apart from these patterns."""
        for number, target in list(self._targets.items()):
            if isinstance(target, Share) and target.actor == actor and self._patterns[number] not in patterns:
                self._end(number)

    def publish(self, subject: str, message: Any, headers: Mapping[str, str] | None) -> None:
        """Publish for the other nodes."""
        self.link.publish(subject, message, None, None if headers is None else dict(headers))

    def request(self, subject: str, message: Any, timeout: float | None, headers: Mapping[str, str] | None) -> Pending:
        """Ask whoever is subscribed at another node."""
        plain = None if headers is None else dict(headers)
        return self.link.call(self.node._engine, subject, message, timeout, None, plain)

    # Services

    def serve(self, host: Host, concurrency: int) -> tuple[list[Pending], Porter]:
        """Let other nodes call an instance. The pendings are done when the hub knows."""
        info, porter = host.info.seen_from("private"), Porter(host, concurrency)
        assert info is not None
        says = known.described(info)
        pendings = [
            self.subscribe(f"svc.{info.name}.{host.instance}.*", "", says, porter),
            self.subscribe(f"svc.{info.name}.*", info.name, None, porter),
        ]
        return pendings, porter

    def _changed(self, message: RemoteMessage) -> None:
        if message.node:
            # Only the hub itself has no name here, and only it knows.
            logger.warning("node %r tells of services in the place of the hub, and is not believed", message.node)
            return
        for entry in known.entries(message.value()):
            if self._newer is not None:
                self._newer.update(_instances(entry))
            if message.subject.endswith(".added"):
                self._add(entry)
            else:
                self._remove(entry)

    def _add(self, entry: known.Entry) -> None:
        info = known.info_of(entry)
        if info is None or entry.node == self.node.name:
            return
        registry = registry_of(self.node)
        group = registry.find(info.name)
        if group is not None and info.instances[0] in group.ports:
            return
        try:
            registry.add(RemotePort(self, info, entry.node))
        except TidewireError as error:
            logger.warning("node %r serves something that can't be called from here: %s", entry.node, error)

    def _remove(self, entry: known.Entry) -> None:
        info = known.info_of(entry)
        group = None if info is None else registry_of(self.node).find(info.name)
        if info is None or group is None:
            return
        # What is served here stays, whatever its hub says.
        if isinstance(group.ports.get(info.instances[0]), RemotePort):
            registry_of(self.node).remove(info.name, info.instances[0])


def _instances(entry: known.Entry) -> tuple[str, ...]:
    info = known.info_of(entry)
    return () if info is None else info.instances


def _log(name: str) -> Callable[[str], None]:
    def log(line: str) -> None:
        logger.warning("%s: %s", name, line)

    return log
