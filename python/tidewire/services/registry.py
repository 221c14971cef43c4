"""Registry of services: the reachable instances of each, and the choice of one for each call."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidewire._binding import Balancer, CallLoad, ChangeCounter
from tidewire._runtime.process_state import lock
from tidewire.errors import AskTimeout, LinkLost, NameTaken, NodeStopped, NoResponders, TidewireError
from tidewire.services.contract.info import InstanceInfo, MethodInfo, ServiceInfo
from tidewire.services.contract.names import STANDBY, nearest, short

if TYPE_CHECKING:
    from tidewire._binding import Pending, Retry
    from tidewire._runtime.steps import Steps
    from tidewire.links.connection import Connection
    from tidewire.node import Node
    from tidewire.services.caller.outbound_call import OutboundCall
    from tidewire.services.instance_transport import InstanceTransport
    from tidewire.services.instances.serve import Served


class Group:
    """The instances of one service.

    Attributes:
        name: The name of the service.
        ports: The routes to its instances by their ids, in the order of their addition.
        methods: Its methods by name.
        balancer: The load of the instances.
        over_links: True if all its instances are in other processes.
        active: The ids of those that neither stand by nor are at another hub.
    """

    def __init__(self, name: str, cut: Callable[[str], LinkLost | None] = lambda _: None) -> None:
        self.name = name
        # Returns the error in place of NoResponders while other nodes can't be reached.
        self._cut = cut
        self.ports: dict[str, InstanceTransport] = {}
        self.methods: dict[str, MethodInfo] = {}
        self.over_links = False
        self.balancer = Balancer()
        self.active: set[str] = set()
        # The instance of this process that holds the lease of a single-active service.
        self._holder = ""

    def add(self, port: InstanceTransport) -> None:
        """Add an instance.

        Raises:
            NameTaken: if there is one with its id, or the service of this name has other
                methods.
        """
        if port.instance in self.ports:
            raise NameTaken(f"instance: {port.instance!r} serves {self.name!r} already: give another id, or none")
        methods = {method.name: method for method in port.info.methods}
        if self.ports and _signatures(methods) != _signatures(self.methods):
            raise NameTaken(
                f"name: {self.name!r} is served already, with the methods {', '.join(sorted(self.methods))}: give another name"
            )
        # Other threads may read the old one.
        self._replace_ports({**self.ports, port.instance: port})
        self.methods = methods
        self.balancer.add(port.instance, port, port.route())

    def remove(self, instance: str) -> None:
        """Forget an instance."""
        self._replace_ports({key: port for key, port in self.ports.items() if key != instance})
        self.balancer.remove(instance)

    def choose(
        self, call: OutboundCall, retry: Retry | None = None, why: TidewireError | None = None
    ) -> tuple[InstanceTransport, CallLoad]:
        """Choose the instance for an attempt of a call, and count the attempt. Return the route and
        the load, which ``ended`` takes.

        Raises:
            NoResponders: if there is none.
            TidewireError: ``why``, if given, in place of it.
        """
        options = call.options
        policy, without = options.policy, () if retry is None else retry.tried
        # While this process has the lease no other instance is active; the hub may learn it later.
        wanted = options.instance or (self._holder not in without and self._holder) or None
        facts = call.facts(self) if policy.kind == "lowest_latency" else ("", None, False)
        chosen: tuple[InstanceTransport, CallLoad] | None = None
        if wanted is None:
            chosen = self.balancer.choose(policy.kind, policy.explore, options.dice, facts, retry)
        elif wanted not in without:
            chosen = self.balancer.named(wanted)
            if chosen is None:
                raise NoResponders(
                    f"{self.name}: instance: {short(wanted)} is not among its instances: {nearest(wanted, self.ports)}"
                )
        if chosen is None:
            lost = why or self._cut(f"{self.name}: it has no instance now")
            raise lost or NoResponders(
                f"{self.name}: its instances are stopping or have lost their link: call again, or serve it"
            )
        return chosen

    def ended(self, instance: str, load: CallLoad, took_s: float | None, failed: bool = False) -> None:
        """Count the end of a call with this load. ``took_s`` is None if its duration is no sample
        of the instance.
        """
        self.balancer.ended(instance, load, took_s, failed)

    def local(self) -> set[str]:
        """Return the ids of the instances in this process."""
        return {instance for instance, port in self.ports.items() if not port.over_link}

    def audience(self) -> list[InstanceTransport]:
        """Return the routes for a call of all instances: the active ones, if there are any."""
        return [port for instance, port in self.ports.items() if instance in self.active or not self.active]

    def _replace_ports(self, ports: dict[str, InstanceTransport]) -> None:
        self.ports = ports
        self.active = {instance for instance in ports if not instance.startswith(STANDBY)}
        self._holder = next((one for one in self.active if not ports[one].over_link and STANDBY + one in ports), "")
        self.over_links = all(port.over_link for port in ports.values())

    @property
    def info(self) -> ServiceInfo:
        """Description of the service, with all instances."""
        ports = self.ports
        first = next(iter(ports.values())).info
        details = tuple(detail for port in ports.values() for detail in port.info.details)
        return dataclasses.replace(first, instances=tuple(ports), details=details)


class Registry:
    """The services that a node can reach.

    Attributes:
        groups: The instances of each, by name.
        change_counter: Rings when an instance is added, or the link is back and the
            instances are known.
        changes: Number of additions and removals of instances.
    """

    def __init__(self, node: Node) -> None:
        self._node = weakref.ref(node)
        self.change_counter = ChangeCounter()
        # The lock protects the table of groups and the list of served instances.
        self._lock = lock()
        self.groups: dict[str, Group] = {}
        self.changes = 0
        self._served: list[Served] = []
        self._watched = False

    @property
    def node(self) -> Node:
        """The node."""
        node = self._node()
        if node is None:
            raise NodeStopped("node: it is gone, and its clients with it: keep the node, or make a new client")
        return node

    def find(self, name: str) -> Group | None:
        """Return the instances of a service, or None if there are none."""
        return self.groups.get(name)

    def group(self, name: str) -> Group:
        """Return the instances of a service.

        Raises:
            NoResponders: if there are none.
            LinkLost: in its place, if the connection to NATS is lost.
            NodeStopped: if the node has been stopped.
        """
        found = self.groups.get(name)
        if found is None:
            self.node._check()
            raise self._cut(f"{name}: nobody is known to serve it") or NoResponders(
                f"{name}: nobody serves it: {self._instead(name)}"
            )
        return found

    def _cut(self, what: str) -> LinkLost | None:
        """Return the error in place of NoResponders while the connection to NATS is lost."""
        connection = self.node._connection
        return None if connection is None or not connection.is_cut else connection.cut(what)

    def _instead(self, name: str) -> str:
        connection = self.node._connection
        if self.groups:
            return nearest(name, self.groups)
        if connection is None or not connection.is_joined:
            return "serve it here, or join the hub where it is served: tw.Node(url)"
        return "no service is known here: look whether a node that serves it has joined the same hub"

    def find_again(self, name: str, within_s: float) -> Steps[None]:
        """Ask the hub, if there is one, for instances of a service that has none here: their
        announcement may be on its way.

        Raises:
            LinkLost: if the link to the hub is lost.
            AskTimeout: if the hub does not reply within that time.
        """
        connection = self._hub_connection(name)
        if connection is not None:
            was_cut = connection.is_cut
            try:
                yield from connection.refresh(within_s)
            except TidewireError as error:
                raise self._refresh_error(name, error) from error
            if was_cut and name not in self.groups:
                # The hub has replied before the other nodes were met again.
                raise connection.cut(f"{name}: nobody is known to serve it")

    def _hub_connection(self, name: str) -> Connection | None:
        connection = self.node._connection
        return connection if name not in self.groups and connection is not None and connection.is_joined else None

    def _refresh_error(self, name: str, error: TidewireError) -> TidewireError:
        """Return the error of a call without a known instance, if the hub does not reply."""
        node = self.node
        if isinstance(error, LinkLost):
            return LinkLost(
                f"{name}: nobody is known to serve it, and the link of {node.name!r} to the hub at {node.url} is lost: "
                "call again once that hub runs; the node joins it again by itself"
            )
        if isinstance(error, AskTimeout):
            return AskTimeout(
                f"{name}: nobody is known to serve it, and the hub at {node.url} did not say in time who does: "
                "allow more, or look whether the hub is stopped or blocked"
            )
        return error

    def infos(self) -> list[ServiceInfo]:
        """Return all services, by name."""
        with self._lock:
            groups = sorted(self.groups.items())
        return [group.info for _, group in groups]

    def instances(self, name: str | None) -> dict[tuple[str, str], InstanceInfo]:
        """Return the instances of one service, or of all, by service name and id."""
        with self._lock:
            groups = [group for group in self.groups.values() if name in (None, group.name)]
            infos = [(group.name, port.info) for group in groups for port in group.ports.values()]
        return {(service, detail.id): detail for service, info in infos for detail in info.details}

    def add(self, port: InstanceTransport) -> None:
        """Add an instance; see ``Group.add``."""
        with self._lock:
            name = port.info.name
            group = self.groups.get(name) or Group(name, self._cut)
            group.add(port)
            self.groups[name] = group
            self.changes += 1
        self._notify()
        self.change_counter.ring()

    def pause(self, wait_s: float, seen: int) -> Pending:
        """Wait for a time, at most until a change after the given count."""
        return self.node._engine.changed(self.change_counter, seen, wait_s)

    def remove(self, service: str, instance: str) -> None:
        """Remove an instance. A second call does nothing."""
        with self._lock:
            group = self.groups.get(service)
            if group is None:
                return
            if set(group.ports) <= {instance}:
                del self.groups[service]
            group.remove(instance)
            self.changes += 1
        self._notify()

    def counts(self, over_links: bool) -> dict[str, int]:
        """Return the number of instances of each service in this process, or of all of them."""
        with self._lock:
            groups = sorted(self.groups.items())
        counts = {name: len(group.ports if over_links else group.local()) for name, group in groups}
        return {name: count for name, count in counts.items() if count}

    def _notify(self) -> None:
        node = self._node()
        if node is not None:
            node._engine.change_counter.ring()

    def keep(self, served: Served) -> None:
        """Register a served instance, which ends with the node."""
        with self._lock:
            first, self._watched = not self._watched, True
            self._served.append(served)
        if first:
            self.node._at_goodbye.append(self.cut_streams)
            self.node._at_abort.append(self.cut_calls)
            self.node.spawn(_Watch(self))

    def forget(self, served: Served) -> None:
        """Remove a served instance that has ended by itself."""
        with self._lock:
            self._served = [one for one in self._served if one is not served]

    def served(self) -> list[Served]:
        """Return the served instances."""
        with self._lock:
            return list(self._served)

    def cut_streams(self) -> None:
        """End the streams of a node that is about to stop: they may be endless. Calls continue."""
        for one in self.served():
            one._cut_streams()

    def cut_calls(self) -> None:
        """Interrupt the calls of this node, which ends with an error."""
        for one in self.served():
            one._cut_calls()

    def node_stops(self) -> None:
        """End the served instances: the engine finishes calls, and streams are cut."""
        for one in self.served():
            one._node_stops()


class _Watch:
    """Actor that ends the served instances when its node stops. It gets no messages."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def receive(self, message: object) -> None:
        """Do nothing: it gets no messages."""

    def stopped(self) -> None:
        """End the served instances: the node stops."""
        self._registry.node_stops()


_registries: weakref.WeakKeyDictionary[Node, Registry] = weakref.WeakKeyDictionary()
_lock = lock()


def registry_of(node: Node) -> Registry:
    """Return the registry of a node."""
    with _lock:
        found = _registries.get(node)
        if found is None:
            found = _registries[node] = Registry(node)
        return found


def _signatures(methods: dict[str, MethodInfo]) -> set[tuple[str, bool]]:
    return {(name, method.stream) for name, method in methods.items()}
