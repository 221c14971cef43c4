"""Serving of objects and functions, and the handle of a served instance."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidewire import _trace_context
from tidewire._binding import release_problem
from tidewire._handlers import Plan
from tidewire._log import log
from tidewire._node.actors import Options
from tidewire._node.ledger import Ledger
from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import Blocking, blocking
from tidewire._runtime.current import running_loop
from tidewire.errors import ActorStopped, AskCycle, InvalidArgument, LinkLost, NodeStopped, TidewireError
from tidewire.services.caller.local import LocalPort
from tidewire.services.contract.declaration import Declaration, declaration_of
from tidewire.services.contract.info import InstanceInfo, ServiceInfo
from tidewire.services.contract.methods import Bound, Event, Method
from tidewire.services.contract.names import STANDBY, short, token_problem, visibility_problem
from tidewire.services.instance_transport import Request, current
from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.services.instances.context import CallContext
from tidewire.services.instances.inbound_call import InboundCall
from tidewire.services.instances.instance import ServiceInstance
from tidewire.services.registry import Registry, registry_of

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, Context, Pending, Subscription
    from tidewire._runtime.steps import Steps
    from tidewire.links.connection import Connection
    from tidewire.links.service_endpoint import ServiceEndpoint
    from tidewire.node import Node
    from tidewire.services.contract.command import Command
    from tidewire.services.instances.durable_handlers import DurableHandlers
    from tidewire.services.instances.single_active import SingleActive
    from tidewire.streams.consumer import Consumer

_TIMEOUT_S = 30.0


def serve(
    node: Node,
    target: Any,
    *,
    name: str | None = None,
    visibility: str | None = None,
    instance: str | None = None,
    concurrency: int | None = None,
    waiting: int | None = None,
    streams: int | None = None,
    dispatcher: str = "default",
    active: str = "all",
    lease: float = 1.5,
    version: str = "",
    metadata: Mapping[str, str] | None = None,
) -> Served | SingleActive:
    """Serve an object, a function, or a dict of functions. Awaiting the result is optional.

    Args:
        node: The node that serves it. The service ends with the node.
        target: An object of a declared service, any other object for its public methods, a
            function, or functions by name.
        name: Name for callers; the default is the name that the class declares.
        visibility: Allowed callers: "node" (this process), "private" (also other nodes) or
            "public" (also clients over HTTP).
        instance: Id of this instance; the default is the name with a random suffix.
        concurrency: Most calls that run at once, over all callers.
        waiting: Most calls and streams that wait to begin; further ones are refused.
        streams: Most streams that are written at once, over all readers; further ones wait.
        dispatcher: Dispatcher whose threads run its plain functions.
        active: "all", or "single": one instance of this name is active at a time, the holder of a
            lease in the storage backend of the node. The others stand by. The result is a
            ``tw.SingleActive``.
        lease: Seconds after which another instance of a single-active service takes over if this
            process is lost: 0.2 to 3,600. The lease is renewed after each third of it.
        version: The semantic version of this instance, such as "1.4.2", for
            ``node.services()``.
        metadata: Further metadata of this instance: texts by name, 4,096 bytes in all.

    ``node.serving`` has the defaults of concurrency, waiting and streams.

    Returns:
        The served instance.

    Raises:
        InvalidArgument: if it can't be served, or an option is not allowed. The error names all
            problems of a declaration. Also with ``active="single"`` if the node has no storage
            backend.
        NameTaken: if there is an instance of this id, or the service of this name has other
            methods.
        UnknownDispatcher: if there is no such dispatcher.
        NodeStopped: if the node has been stopped.
        TidewireError: when the result is awaited: the refusal of the hub, such as Unauthorized or
            NameTaken. The service is then no longer served in this process either.
    """
    node._check()
    if isinstance(target, type):
        raise InvalidArgument(
            f"target: {target.__qualname__} is a class: give an object of it, {target.__qualname__}(...)"
        )
    declared = declaration_of(target, name)
    capacity = ConcurrencyLimits.of(node.serving, concurrency, waiting, streams)
    problems = [None if visibility is None else visibility_problem("visibility", visibility)]
    problems.append(None if instance is None else token_problem("instance", instance))
    if isinstance(instance, str) and instance.startswith(STANDBY):
        problems.append(
            f"instance: {instance!r} is not allowed: ids that begin with {STANDBY!r} belong to standby instances"
        )
    if active not in ("all", "single"):
        problems.append(f"active: {active!r} is not allowed: give 'all' or 'single'")
    if not isinstance(lease, (int, float)) or not 0.2 <= lease <= 3_600:
        problems.append(f"lease: {lease!r} is not allowed: give 0.2 to 3,600 seconds")
    problems.append(_release_problem(version, metadata))
    for problem in filter(None, problems):
        raise InvalidArgument(problem)
    chosen = f"{declared.name}-{secrets.token_hex(4)}" if instance is None else instance
    detail = InstanceInfo(chosen, node.name, version, dict(metadata or {}))
    info = _info(declared, visibility or declared.visibility, detail)
    if active == "single":
        from tidewire.services.instances.single_active import SingleActive

        return SingleActive(node, target, declared, info, capacity, dispatcher, round(lease * 1_000_000))
    return Served(node, target, declared, info, capacity, dispatcher)


def known(node: Node) -> list[ServiceInfo]:
    """Return the services that a node can reach, by name."""
    return registry_of(node).infos()


class Served:
    """Handle of one served instance.

    Attributes:
        name: The name of the service.
        instance: The id of the instance.
        info: Its description for other nodes.
    """

    def __init__(
        self,
        node: Node,
        target: Any,
        declared: Declaration,
        info: ServiceInfo,
        capacity: ConcurrencyLimits,
        dispatcher: str,
    ) -> None:
        self.name = info.name
        (self.instance,) = info.instances
        self.info = info
        self._node = node
        self._registry: Registry = registry_of(node)
        self._events: list[tuple[Subscription, ActorRef]] = []
        self._ledger: Ledger | None = None
        self._announcements: list[Pending] = []
        self._durables: DurableHandlers | None = None
        self._endpoint: ServiceEndpoint | None = None
        methods = {
            one.name: _bound(declared.methods[one.name], target, declared.name, node.name, one.visibility)
            for one in info.methods
        }
        self._instance = ServiceInstance(node, info, methods, capacity, dispatcher)
        try:
            for event in declared.events:
                if event.mark.durable.name is None:
                    self._listen(event, target, dispatcher)
            durable = [event for event in declared.events if event.mark.durable.name is not None]
            self._registry.add(LocalPort(self._instance))
            commands = [
                (command, _bound(command, target, declared.name, node.name)) for command in declared.commands.values()
            ]
            if durable or commands:
                try:
                    events = [(event, _bound(event, target, declared.name, node.name)) for event in durable]
                    self._consume(events, commands, dispatcher)
                except BaseException:
                    self._registry.remove(self.name, self.instance)
                    raise
        except BaseException:
            self._unsubscribe()
            self._stops(False, 0.0)
            raise
        self._registry.keep(self)
        text = "%(node)s: serves %(service)r, instance %(instance)r"
        log.info("service.started", text, node=node.name, service=self.name, instance=self.instance)
        connection = node._connection
        if connection is not None and connection.is_joined:
            self._join(connection)

    def __await__(self) -> Generator[Any, Any, Served]:
        import asyncio

        try:
            for pending in self._announcements:
                # The reply of the hub survives a cancelled wait.
                yield from asyncio.shield(pending).__await__()
        except TidewireError as error:
            # A lost link is joined again, and serves it then. A refused service ends.
            if not isinstance(error, (LinkLost, NodeStopped)):
                yield from self.stop(drain=False).__await__()
            raise
        if self._durables is not None:
            try:
                yield from self._durables.opened().__await__()
            except Exception:
                yield from self.stop(drain=False).__await__()
                raise
        return self

    @property
    def consumers(self) -> dict[str, Consumer]:
        """The consumers of its durable handlers, by the names given as ``durable``: for their
        state, pauses and dead letters.
        """
        return {} if self._durables is None else self._durables.consumers

    def _consume(
        self, events: list[tuple[Event, Bound]], commands: list[tuple[Command, Bound]], dispatcher: str
    ) -> None:
        from tidewire.services.instances.durable_handlers import DurableHandlers

        self._durables = DurableHandlers(self._node, self._instance, events, commands, dispatcher)
        if running_loop() is None:
            # Without a running loop nobody can await the start.
            try:
                self._durables.opened_blocking()
            except BaseException:
                steps.blocking(self._durables.stopping(False, 0.0))
                raise

    def _join(self, connection: Connection) -> None:
        """Serve it to other nodes, unless its visibility is "node"."""
        if self._endpoint is None and self.info.seen_from("private") is not None:
            self._announcements, self._endpoint = connection.serve(self._instance)

    async def stop(self, drain: bool = True, timeout: float | None = _TIMEOUT_S) -> Ledger:
        """Stop this instance: it takes no more calls, and its streams are cut. A second call
        returns the same ledger.

        Args:
            drain: True to finish the calls that have arrived. Otherwise handlers are cancelled,
                and other instances get the calls that have not begun.
            timeout: Seconds after which stuck handlers are abandoned.

        Returns:
            Outcome of all calls and events.

        Raises:
            AskCycle: if a method of this instance waits for it.
        """
        return await steps.awaited(self._end(drain, timeout))

    def _end(self, drain: bool = True, timeout: float | None = _TIMEOUT_S) -> Steps[Ledger]:
        self._refuse_self_stop()
        if self._ledger is None:
            self._leave()
            ledgers: list[Ledger] = []
            if self._durables is not None:
                ledgers.append((yield from self._durables.stopping(drain, timeout)))
            for pending in self._stops(drain, timeout):
                ledgers.append(self._stopped((yield pending)))
            self._ledger = self._ledger or Ledger.total(ledgers or [Ledger(0, 0, 0, 0)])
        return self._ledger

    @property
    def sync(self) -> ServedSync:
        """Blocking forms, for plain threads."""
        return ServedSync(self, self._node)

    def statistics(self) -> dict[str, Any]:
        """Return the counts of calls and streams, and the durations of calls. Calls that never
        began are not counted.
        """
        counts = self._instance.counters.summary()
        return {"service": self.name, "instance": self.instance, **counts, "waiting": self._instance.waiting}

    def __repr__(self) -> str:
        state = "stopped" if self._ledger is not None else "serving"
        return f"<Served {self.name!r} {self.instance!r}, {len(self.info.methods)} methods, {state}>"

    def _refuse_self_stop(self) -> None:
        running = current()
        if running is not None and running.instance == self.instance:
            title = running.request.title
            raise AskCycle(
                f"{title} would wait for the end of its own instance {self.instance!r}: stop it in a task of its own",
                path=[title, title],
            )

    def _leave(self) -> None:
        text, node = "%(node)s: serves %(service)r, instance %(instance)r, no longer", self._node.name
        log.info("service.stopped", text, node=node, service=self.name, instance=self.instance)
        self._registry.remove(self.name, self.instance)
        self._registry.forget(self)
        self._unsubscribe()
        self._instance.end_streams(self._stopping)

    def _stopping(self) -> ActorStopped:
        return ActorStopped(f"{self.name}: the instance {self.instance!r} is stopping: call another, or serve it again")

    def _unsubscribe(self) -> None:
        for subscription, _ in self._events:
            subscription.unsubscribe()
        connection = self._node._connection
        if self._endpoint is not None and connection is not None:
            connection.unsubscribe(self._endpoint)

    def _stops(self, drain: bool, timeout: float | None) -> list[Pending]:
        if not drain:
            self._instance.cancel_calls(self._stopping)
        own = None if self._endpoint is None else self._endpoint.own_actor
        actors = [*(actor for _, actor in self._events), *([] if own is None else [own]), *self._instance.close()]
        return [actor.stop(drain, timeout) for actor in actors]

    def _stopped(self, ledger: Ledger) -> Ledger:
        if self._endpoint is not None:
            self._endpoint.give_back(ledger.messages)
        return ledger

    def _node_stops(self) -> None:
        self._registry.remove(self.name, self.instance)
        self._cut_streams()
        if self._durables is not None:
            self._durables.cut()

    def _cut_streams(self) -> None:
        self._instance.end_streams(
            lambda: NodeStopped(f"{self.name}: its node is stopping, and its streams end: read it from another node")
        )

    def _cut_calls(self) -> None:
        self._instance.cancel_calls(
            lambda: NodeStopped(f"{self.name}: its node was ended by an error, and this call with it: call another")
        )

    def _listen(self, event: Event, target: Any, dispatcher: str) -> None:
        bound = _bound(event, target, self.name, self._node.name)
        receive = self._receiver(bound, event)

        def plan() -> Plan:
            return Plan(receive, takes_context=True, coroutine=bound.coroutine)

        actor = self._node._spawn_plan(plan, Options(dispatcher="default" if bound.coroutine else dispatcher))
        try:
            subscription = self._node.subscribe(event.mark.subject, actor, event.mark.queue)
        except BaseException:
            actor.stop(drain=False, timeout=0.0)
            raise
        self._events.append((subscription, actor))

    def _receiver(self, bound: Bound, event: Event) -> Callable[..., Any]:
        instance, name = self._instance, self.name

        def inbound_call(message: Any, context: Context) -> InboundCall:
            request = Request(
                name,
                event.name,
                (message,),
                {},
                headers=context.headers or {},
                subject=context.subject,
                node=context.origin or self._node.name,
            )
            return InboundCall(request, bound, self.instance)

        async def receive_async(message: Any, context: Context) -> None:
            running = inbound_call(message, context)
            token = running.enter_task()
            try:
                args, kwargs = instance.arguments(running)
                await bound.call(*args, **kwargs)
            finally:
                running.leave(token)

        def receive(message: Any, context: Context) -> None:
            running = inbound_call(message, context)
            token = running.enter()
            try:
                args, kwargs = instance.arguments(running)
                bound.call(*args, **kwargs)
            finally:
                running.leave(token)

        return receive_async if bound.coroutine else receive


class ServedSync(Blocking[Served]):
    """Blocking calls of a served instance, at ``served.sync``."""

    stop = blocking(Served.stop, "_end")


def _release_problem(version: Any, metadata: Any) -> str | None:
    if not isinstance(version, str):
        return f"version: {short(version)} is not allowed: give a text such as '1.4.2'"
    if metadata is None:
        metadata = {}
    texts = isinstance(metadata, Mapping) and all(isinstance(text, str) for pair in metadata.items() for text in pair)
    if not texts:
        return f"metadata: {short(metadata)} is not allowed: give texts by name, such as {{'zone': 'eu'}}"
    return release_problem(version, dict(metadata))


def _info(declared: Declaration, visibility: str, detail: InstanceInfo) -> ServiceInfo:
    return ServiceInfo(
        declared.name,
        declared.description,
        visibility,
        tuple(method.info(visibility) for method in declared.methods.values()),
        tuple(event.info() for event in declared.events),
        (detail.id,),
        (detail,),
        tuple(command.info() for command in declared.commands.values()),
    )


def _bound(declared: Method | Event | Command, target: Any, service: str, node: str, visibility: str = "node") -> Bound:
    function, is_method = declared.function, isinstance(declared, Method)
    streams = is_method and function.streams
    call = function.bound(target)
    bound = Bound(declared.name, call, function.signature, function.coroutine, streams, visibility)
    spans = _trace_context.spans
    if spans is None:
        return bound
    return replace(bound, call=spans.handler(bound, service, node, consumes=not is_method))


__all__ = ["CallContext", "Served", "known", "serve"]
