"""The link of one node: to its hub, or to itself as the hub."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import weakref
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._binding import Hub, Link, RemoteCall, service_subject
from tidewire._log import log
from tidewire._urls import without_secrets
from tidewire.errors import InvalidArgument, LinkLost, NodeStopped
from tidewire.links import announcements
from tidewire.links.addresses import check_open
from tidewire.links.connection_ends import ConnectionEnds
from tidewire.links.discovery import CHANGES, Discovery
from tidewire.links.service_endpoint import ServiceEndpoint
from tidewire.links.subjects import ActorSubscription
from tidewire.links.tls import Tls, certificates
from tidewire.services.contract.names import plain_headers
from tidewire.services.registry import registry_of

if TYPE_CHECKING:
    from tidewire._binding import (
        ActorRef,
        Bridge,
        Engine,
        Gateway,
        InstanceEndpoint,
        LinkSubscription,
        Listening,
        Pending,
        RemoteMessage,
    )
    from tidewire._runtime.steps import Steps
    from tidewire.links.agent_endpoint import RemoteAgents
    from tidewire.links.http import Http
    from tidewire.node import Node
    from tidewire.objects.references import Objects
    from tidewire.services.instances.instance import ServiceInstance

    _Inbound = tuple[int, RemoteCall | RemoteMessage | BaseException | bool | None]

_Target = Callable[[Any], None]
_NO_RESPONDERS = 17
# Time for which a stopping node waits until its hub has taken fetched events back, and the least
# of it after the timeout of the stop.
_RETURN_S, _GRACE_S = 3.0, 1.0
# The calls have ended: their replies are written at once.
_LAST_ANSWERS_S = 1.0


class Connection:
    """Connection of a node to its hub: subscriptions, calls, services and agents.

    Attributes:
        ends: The open sockets and listeners.
    """

    def __init__(self, node: Node) -> None:
        self._node = weakref.ref(node)
        self.ends = ConnectionEnds()
        self._secret = os.urandom(16).hex()
        self._numbers = itertools.count(1)
        self._targets: dict[int, _Target] = {}
        self._patterns: dict[int, str] = {}
        self._refused: set[int] = set()
        self._link_subscriptions: dict[int, LinkSubscription] = {}
        self._tokens: list[Any] = []
        self._discovery = Discovery(self)
        self._agents: RemoteAgents | None = None
        self._objects: Objects | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def node(self) -> Node:
        """The node."""
        node = self._node()
        if node is None:
            raise NodeStopped("node: it is gone: keep it for as long as its link is used")
        return node

    @property
    def joined(self) -> Link | None:
        """The link, if there is one."""
        return self.ends.link

    @property
    def hub(self) -> Hub | None:
        """The hub, if this node is one."""
        return self.ends.hub

    @property
    def link(self) -> Link:
        """The link.

        Raises:
            LinkLost: if the node has no link.
            NodeStopped: if it has been stopped.
        """
        link = self.ends.link
        if link is None:
            self.node._check()
            raise LinkLost(f"{self.node.name}: this node is joined to no hub: give its URL, or call listen()")
        return link

    @property
    def is_joined(self) -> bool:
        """True if there is a link."""
        return self.joined is not None

    @property
    def hub_name(self) -> str | None:
        """The name of the hub, or None while the link is lost."""
        joined = None if self.joined is None else self.joined.joined
        return None if joined is None else joined[0]

    @property
    def is_current(self) -> bool:
        """True if the directory of services came over the current link."""
        return self.hub_name is not None and self._discovery.epoch == self.link.epoch

    @property
    def nodes(self) -> int:
        """Number of nodes at this hub, itself included; 0 if this node is no hub."""
        return 0 if self.hub is None else self.hub.statistics()["nodes"]

    @property
    def is_lost(self) -> bool:
        """True if the link was lost, and the node joins again."""
        return self.is_cut or (self.joined is not None and self.joined.joined is None)

    @property
    def is_cut(self) -> bool:
        """True from the loss of the connection to NATS until the other nodes are known again."""
        bridge = self.ends.bridge
        return bridge is not None and not bridge.is_connected

    def cut(self, problem: str) -> LinkLost:
        """Return the error of a target that is not found while the connection to NATS is lost."""
        error = LinkLost(
            f"{problem}, and the connection of {self.node.name!r} to {without_secrets(self.node.url)} is lost: "
            "call again once a server runs; the node connects again by itself"
        )
        # No instance has received the call, so that its retries may repeat it.
        vars(error).update(of_link=True, untaken=True)
        return error

    @property
    def places(self) -> list[str]:
        """The addresses at which other nodes can join."""
        return [one.url for one in self.ends.places if one.is_open]

    @property
    def open_calls(self) -> int:
        """Calls that pass through this node as a hub and are not answered yet."""
        return 0 if self.hub is None else self.hub.open_calls

    # Joining and listening

    def join(self, url: str, token: str | None, tls: Tls | None = None) -> None:
        """Join a hub, and block until the hub has accepted this node.

        Raises:
            InvalidArgument: if the certificates can't be used, one is not trusted by the other
                side, or the URL has no TLS.
            LinkLost: if no hub listens there.
            WireError: if the listener there is no hub.
            Unauthorized: if the hub does not accept the token.
            NameTaken: if a node of this name has joined already.
            VersionMismatch: if the hub speaks another version.
        """
        node = self.node
        links, notice = node.links.to_dict(), _log(node.name)
        self.ends.link = Link.join(url, node.name, token, links, notice, self._secret, certificates(tls))
        text = "%(node)s: has joined the hub %(hub)r at %(url)s"
        log.info("link.joined", text, node=node.name, hub=self.hub_name, url=url)

    def bridge(self, url: str) -> None:
        """Become a hub that reaches the other nodes of a cluster over NATS. Block until those nodes
        are known.

        Raises:
            InvalidArgument: if the URL can't be used, or the server allows too few bytes in a
                message.
            LinkLost: if no server can be reached.
            Unauthorized: if it refuses the login, or the subjects of the nodes.
            NameTaken: if a node of this name is in the cluster.
        """
        node = self.node
        hub = Hub(node.name, [], node.links.to_dict(), _log(node.name), bridged=True)
        bridge = hub.bridge(url, _log(node.name))
        try:
            self.ends.link = hub.join(node.name, None, node.links.to_dict())
        except BaseException:
            bridge.close()
            raise
        self.ends.hub, self.ends.bridge = hub, bridge
        hub.tell(node._engine.change_counter)
        log.info("link.joined", "%(node)s: has joined the cluster at %(url)s", node=node.name, url=without_secrets(url))

    def notice(self) -> Callable[[str, bool], None]:
        """Return the function that logs a line of the hub."""
        return _log(self.node.name)

    def listen(self, url: str, tokens: list[Any], insecure: bool, tls: Tls | None = None) -> Listening:
        """Become a hub, or open one more address for other nodes.

        Raises:
            InvalidArgument: if the node has joined another hub, the URL is not one to listen at, or
                the tokens are not those of its first place.
            Unauthorized: if other machines could reach it without a token.
            ConfigError: if the place is taken.
        """
        node = self.node
        if not isinstance(url, str):
            raise InvalidArgument(f"url: {url!r} is not allowed: give text such as 'tide://127.0.0.1:7420'")
        self._check_hub(tokens)
        files = certificates(tls)
        check_open(url, bool(tokens or self._tokens), insecure, mutual=files is not None and files[0] is not None)
        hub = self.hub or Hub(node.name, tokens, node.links.to_dict(), _log(node.name))
        listening = hub.bind(url, files)
        self._begin(hub, tokens, listening)
        self.ends.places.append(listening)
        return listening

    def listen_http(self, url: str, tokens: list[Any], insecure: bool, http: Http) -> Gateway:
        """Become a hub, if this node is none, and let clients call its public services over HTTP.

        Raises:
            InvalidArgument: if the node has joined another hub, the URL or a limit is not allowed,
                the files can't be read, or the tokens are not those of its first place.
            Unauthorized: if other machines could reach it in clear text.
            ConfigError: if the place is taken.
        """
        node = self.node
        self._check_hub(tokens)
        hub = self.hub or Hub(node.name, tokens, node.links.to_dict(), _log(node.name))
        others = len(self.ends.gateways)
        name = f"{node.name}-http" if not others else f"{node.name}-http-{others + 1}"
        files = None if http.files is None else str(http.files)
        console = http.console_files()
        settings = (name, dict(http.limits), list(http.cors), list(http.hosts), files, console, insecure)
        gateway = hub.bind_http(url, settings, _log(node.name))
        self._begin(hub, tokens, gateway)
        self.ends.gateways.append(gateway)
        return gateway

    def _check_hub(self, tokens: list[Any]) -> None:
        if self.hub is None and self.joined is not None:
            raise InvalidArgument(
                f"listen: {self.node.name} has joined the hub at {self.node.url}: only one that has not can be a hub"
            )
        ends = self.ends
        if self.hub is not None and ends.bridge is not None and not ends.places and not ends.gateways and tokens:
            self.hub.admit(tokens)
            self._tokens = tokens
        if self.hub is not None and tokens and tokens != self._tokens:
            raise InvalidArgument(
                "tokens: they differ from those of the first listen(): give the hub all tokens in its first listen()"
            )

    def _begin(self, hub: Hub, tokens: list[Any], place: Listening | Gateway) -> None:
        """Serve at the hub, if it is new, and then accept other nodes at an address."""
        try:
            if self.hub is None:
                self._become_hub(hub, tokens, place.url)
        except BaseException:
            place.close()
            raise
        if self.ends.home is None:
            self.ends.home = self.node._home_server(self.link)
        place.accept()

    def _become_hub(self, hub: Hub, tokens: list[Any], url: str) -> None:
        """Join the own hub: this node becomes one."""
        node = self.node
        self.ends.link = hub.join(node.name, tokens[0][0] if tokens else None, node.links.to_dict())
        self.ends.hub, self._tokens = hub, tokens
        log.info("hub.listening", "%(node)s: is a hub, and listens at %(url)s", node=node.name, url=url)
        hub.tell(node._engine.change_counter)
        self._open()
        # The subscription receives all changes from now on.
        self._discovery.is_complete()
        self._serve_all()
        node._share_all()
        if node._agents is not None:
            self.agents.announce_all()

    def open(self) -> Steps[None]:
        """Subscribe, and load the directory of services.

        Raises:
            LinkLost: if the link is lost meanwhile.
        """
        # The hub answers the subscription first; alone it would wait for a lost link to be back.
        subscribing = self._open()
        yield from self.refresh()
        yield subscribing

    def _open(self) -> Pending:
        link = self.link
        link.take_with(_reference_reader(weakref.ref(self)))
        self.node._on_loop(lambda bridge: link.deliver_to(bridge, _receiver(weakref.ref(self)), self.node._engine))
        self.objects.open()
        statistics = self.node._inspector
        if statistics is not None and self.node._inspect:
            self.subscribe(statistics.pattern, "", statistics.announcement, statistics.take)
        return self.subscribe(CHANGES, "", None, self._discovery.changed)

    def follow(self, bridge: Bridge) -> None:
        """Deliver inbound messages on another event loop."""
        if self.joined is not None:
            self.joined.follow(bridge)

    def refresh(self, within_s: float = math.inf) -> Steps[None]:
        """Load the directory of services from the hub."""
        return self._discovery.refresh(within_s)

    async def all_nodes(self) -> list[announcements.NodeInfo]:
        """Return the nodes at the hub, itself included."""
        return await self._discovery.nodes()

    @property
    def agents(self) -> RemoteAgents:
        """The agents of other nodes."""
        if self._agents is None:
            from tidewire.links.agent_endpoint import RemoteAgents

            self._agents = RemoteAgents(self)
        return self._agents

    @property
    def objects(self) -> Objects:
        """Exported and imported functions and objects of this node."""
        if self._objects is None:
            from tidewire.objects.references import Objects

            self._objects = Objects(self)
        return self._objects

    @property
    def skipped(self) -> int:
        """Number of malformed announcements of services and agents that came from the hub."""
        return self._discovery.reader.skipped

    def _serve_all(self) -> None:
        for served in registry_of(self.node).served():
            served._join(self)

    def close(self) -> None:
        """End the link. Calls and subscriptions of other nodes fail."""
        if self._renewing is not None:
            self._renewing.cancel()
        if self._objects is not None:
            self._objects.close()
        self._targets.clear()
        self.ends.close()

    def leave(self) -> None:
        """End the link of a node that has not started. It may join again."""
        self.close()
        self._patterns.clear()
        self._link_subscriptions.clear()

    def goodbye(self) -> None:
        """Take no new calls: the node is about to stop."""
        for server in (*self.ends.gateways, self.ends.bridge, self.ends.home):
            if server is not None:
                server.goodbye()
        if self.hub is not None:
            self.hub.goodbye()
        if self.joined is not None:
            if self.hub is None:
                log.info("link.left", "%(node)s: leaves the hub %(hub)r", node=self.node.name, hub=self.hub_name)
            self.joined.goodbye()

    def draining(self, until: float | None) -> Steps[None]:
        """Wait until the node has sent all replies, and the calls that pass through it have ended,
        at most until the given time.
        """
        link, hub = self.joined, self.hub
        if link is not None:
            left_s = _left(until)
            yield link.returned(_RETURN_S if left_s is None else min(max(left_s, _GRACE_S), _RETURN_S))
            yield link.drained(_left(until))
        if hub is not None:
            yield hub.idle(_left(until))
        for gateway in self.ends.gateways:
            yield gateway.idle(min(_left(until) or _LAST_ANSWERS_S, _LAST_ANSWERS_S))

    # Inbound messages

    def subscribe(
        self,
        pattern: str,
        queue: str,
        announcement: dict[str, str] | None,
        target: _Target,
        endpoint: InstanceEndpoint | None = None,
        mailbox: tuple[Engine, ActorRef] | None = None,
        listens: bool = False,
    ) -> Pending:
        """Deliver the messages and calls of a pattern to a function on the loop; calls go to the
        endpoint, and messages to the mailbox, where those can take them. A subscription that only
        listens gets no calls. The pending is done once the hub has the subscription.
        """
        number = next(self._numbers)
        self._targets[number] = target
        self._patterns[number] = pattern
        subscription, pending = self.link.subscribe(pattern, queue, announcement, number, endpoint, mailbox, listens)
        self._link_subscriptions[number] = subscription
        return pending

    def unsubscribe(self, target: _Target) -> None:
        """End the subscriptions of a function."""
        for number in [number for number, other in self._targets.items() if other is target]:
            self._end(number)

    def _end(self, number: int) -> None:
        self._targets.pop(number, None)
        self._patterns.pop(number, None)
        self._refused.discard(number)
        subscription = self._link_subscriptions.pop(number, None)
        if subscription is not None:
            subscription.close()

    def _receive(self, items: list[_Inbound]) -> None:
        for number, item in items:
            if isinstance(item, BaseException):
                self._log_refused(number, item)
                continue
            if item is False:
                self.objects.lost()
                self.tell()
                continue
            if item is None and number:
                self.objects.left(number)
                continue
            if item is None:
                text = "%(node)s: has joined the hub %(hub)r again"
                log.info("link.rejoined", text, node=self.node.name, hub=self.hub_name)
                self.objects.open()
                self.renew()
                self.tell()
                continue
            if isinstance(item, RemoteCall) and item.cancelled:
                continue
            target = self._targets.get(number)
            if target is None:
                if isinstance(item, RemoteCall):
                    item.refuse(_NO_RESPONDERS, f"{item.subject}: the subscription has ended")
                continue
            try:
                target(item)
            # An item that can't be delivered must not affect the others of its burst.
            except Exception as error:  # noqa: BLE001
                text = "%(item)r could not be taken in: %(error)s"
                log.error("link.delivery_failed", text, exc_info=error, node=self.node.name, item=item, error=error)

    def _log_refused(self, number: int, error: BaseException) -> None:
        """Log an error that nobody has awaited, once for each subscription."""
        pattern = self._patterns.get(number)
        if pattern is None or number in self._refused:
            return
        self._refused.add(number)
        log.warning(
            "link.subscription_refused",
            "%(node)s: the hub %(hub)r refuses %(subject)r, so that other nodes don't reach it here: %(error)s; await what "
            "subscribe() and serve() return to get this as an error",
            node=self.node.name,
            hub=self.hub_name,
            subject=pattern,
            error=error,
        )

    def tell(self) -> None:
        """Wake the callers that wait for changes of this node."""
        node = self._node()
        if node is not None:
            node._engine.change_counter.ring()

    def renew(self) -> None:
        """Load the directory anew, as no change was announced during the loss. On the loop."""
        self._renewing = asyncio.get_running_loop().create_task(self._discovery.renew())

    # Subjects

    def share(
        self, actor: ActorRef, pattern: str, queue: str | None, listens: bool = False
    ) -> tuple[ActorSubscription, Pending]:
        """Deliver messages of other nodes on a pattern to an actor of this node, and requests too
        unless it only listens. The pending is done once the hub has the subscription.
        """
        engine = self.node._engine
        share = ActorSubscription(engine, actor, self.unsubscribe)
        return share, self.subscribe(pattern, queue or "", None, share, mailbox=(engine, actor), listens=listens)

    def keep_shared(self, actor: ActorRef, patterns: list[str]) -> None:
        """End the subscriptions of an actor, apart from these patterns."""
        for number, target in list(self._targets.items()):
            if (
                isinstance(target, ActorSubscription)
                and target.actor == actor
                and self._patterns[number] not in patterns
            ):
                self._end(number)

    def request(self, subject: str, message: Any, timeout: float | None, headers: Mapping[str, str] | None) -> Pending:
        """Send a request to a subscriber at another node."""
        return self.link.call(
            self.node._engine, subject, message, timeout, None, None if headers is None else plain_headers(headers)
        )

    # Services

    def serve(self, instance: ServiceInstance) -> tuple[list[Pending], ServiceEndpoint]:
        """Serve an instance to other nodes. The pendings are done once the hub has it."""
        info, service_endpoint = instance.info.seen_from("private"), ServiceEndpoint(instance)
        assert info is not None
        announcement = announcements.described(info)
        pendings = [
            self.subscribe(
                service_subject(info.name, "*"), info.name, None, service_endpoint, service_endpoint.endpoint
            ),
            # After the other one: a node that sees the announcement can call in both ways.
            self.subscribe(
                service_subject(info.name, "*", instance.id),
                "",
                announcement,
                service_endpoint,
                service_endpoint.endpoint,
            ),
        ]
        return pendings, service_endpoint


def _receiver(connection: weakref.ref[Connection]) -> Callable[[list[_Inbound]], None]:
    """Return the receiver of a link, which must not keep its connection alive."""

    def receive(items: list[_Inbound]) -> None:
        found = connection()
        if found is not None:
            found._receive(items)

    return receive


def _reference_reader(connection: weakref.ref[Connection]) -> Callable[[Any], Any]:
    """Return the reader of references. The link must not keep its connection alive."""

    def take(reference: Any) -> Any:
        found = connection()
        return None if found is None else found.objects.take(reference)

    return take


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - monotonic())


def _log(name: str) -> Callable[[str, bool], None]:
    def notice(line: str, is_wrong: bool) -> None:
        log.at(logging.WARNING if is_wrong else logging.INFO, "hub.notice", "%(node)s: %(line)s", node=name, line=line)

    return notice
