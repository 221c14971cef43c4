"""Public clients of services."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from math import inf
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from tidewire._binding import NativeMethod
from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import Blocking, refuse_loop, run
from tidewire.errors import InvalidArgument, NoSuchTarget
from tidewire.services.caller import signatures
from tidewire.services.caller.argument_streams import has_streams
from tidewire.services.caller.calls import Call, CallOrStream
from tidewire.services.caller.options import CallOptions
from tidewire.services.caller.outbound_call import OutboundCall
from tidewire.services.caller.routing import RoutingExplanation, explain
from tidewire.services.contract.declaration import Declaration, declaration_of, is_declared
from tidewire.services.contract.info import MethodInfo, ServiceCommand
from tidewire.services.contract.names import nearest, short, token_problem
from tidewire.services.limits import CALL_TIMEOUT_S
from tidewire.services.registry import Registry, registry_of
from tidewire.services.stream_reader import BlockingStream, Stream

if TYPE_CHECKING:
    from tidewire.node import Node
    from tidewire.services.caller.argument_check import Signature
    from tidewire.services.contract.command import Command
    from tidewire.services.contract.declare import Service
    from tidewire.services.contract.methods import Method
    from tidewire.services.registry import Group
    from tidewire.streams.command_run import CommandRun, SyncCommandRun

_S = TypeVar("_S", bound="Service")
_ANY_ARITY: tuple[list[str], int, bool] = ([], 0, True)
"""Arity of a method whose arguments are checked at each call."""
_CACHED_OPTIONS = frozenset(("timeout", "priority"))
_SCALARS = frozenset((int, float, str))
_VARIANTS_MAX = 32
"""Most cached clients with other options."""


class NoSuchMethod(NoSuchTarget, AttributeError):
    """A service has no method of this name."""


@overload
def client(node: Node, service: type[_S], name: str | None = None) -> type[_S]: ...


@overload
def client(node: Node, service: type | str, name: str | None = None) -> Any: ...


def client(node: Node, service: Any, name: str | None = None) -> Any:
    """Return a client of a service. The service need not be running.

    Args:
        node: The node that makes the calls.
        service: The class of the service, for a client with its methods and types; or its name.
        name: Name of the service, if it differs from the name of the class.

    Raises:
        InvalidArgument: if the class declares no service, or a name is not allowed.
    """
    node._check()
    if isinstance(service, str):
        if name is not None and name != service:
            raise InvalidArgument(f"name: {short(name)} is not allowed beside the name {service!r}: give one of them")
        problem = token_problem("service", service)
        if problem is not None:
            raise InvalidArgument(problem)
        return Client(registry_of(node), service, None, CallOptions())
    if not is_declared(service):
        raise InvalidArgument(
            f"service: {short(service)} is not allowed: give the name of a service, or a class that derives from "
            "tw.Service or is decorated with @tw.service"
        )
    declared = declaration_of(service, name)
    return Client(registry_of(node), declared.name, declared, CallOptions())


class Client:
    """Client of a service. It has the methods of the service.

    ``await client.quote("X")`` calls a method, and ``async for tick in client.ticks("X")`` reads a
    stream. ``client.sync.quote("X")`` blocks a plain thread, and
    ``client.with_(timeout=1.0).quote("X")`` calls with other options.
    """

    def __init__(self, registry: Registry, service: str, declared: Declaration | None, options: CallOptions) -> None:
        self._registry = registry
        self._service = service
        self._declared = declared
        self._options = options
        self._client_methods: dict[str, ClientMethod] = {}
        self._variants: dict[tuple[Any, ...], Client] = {}

    def __class_getitem__(cls, service: Any) -> GenericAlias:
        """``Client[Pricing]``, for annotations."""
        return GenericAlias(cls, service)

    def with_(self, **options: Any) -> Client:
        """Return a client with other options.

        Args:
            **options: ``timeout`` in seconds, ``priority``, ``instance`` (the id of one),
                ``policy`` ("first", "random", "least_outstanding", "lowest_latency", "all", or a
                ``tw.Policy``), ``headers``. None leaves an option as it is.

        Raises:
            InvalidArgument: if an option is not known, or its value is not allowed.
        """
        # A policy has its own random state, and the caller may change the headers.
        types = tuple(map(type, options.values()))
        is_cacheable = _CACHED_OPTIONS.issuperset(options) and _SCALARS.issuperset(types)
        key = (*options.items(), *types) if is_cacheable else None
        found = None if key is None else self._variants.get(key)
        if found is None:
            found = Client(self._registry, self._service, self._declared, self._options.changed(options))
            if key is not None and len(self._variants) < _VARIANTS_MAX:
                self._variants[key] = found
        return found

    @property
    def sync(self) -> BlockingClient:
        """The same methods for plain threads: they block, and streams are read with ``for``."""
        return BlockingClient(self, self._registry.node)

    def __getattr__(self, name: str) -> ClientMethod | ClientCommand:
        if name.startswith("_"):
            raise AttributeError(f"a client of {self._service!r} has no attribute {name!r}")
        commands = self._commands()
        if name in commands:
            command = self.__dict__[name] = ClientCommand(self, name)
            return command
        known = self._methods()
        if known is not None and name not in known:
            raise NoSuchMethod(f"{self._service} has no method {name!r}: {nearest(name, {*known, *commands})}")
        client_method = self._client_methods.get(name)
        if client_method is None:
            client_method = self._client_methods[name] = ClientMethod(self, name)
        if known is not None:
            # The next access bypasses this method.
            self.__dict__[name] = client_method
        return client_method

    def __dir__(self) -> list[str]:
        return sorted({*(self._methods() or ()), *self._commands(), "sync", "with_"})

    def __repr__(self) -> str:
        group = self._registry.find(self._service)
        count = 0 if group is None else len(group.ports)
        declared = "" if self._declared is None else f" ({self._declared.title})"
        return f"<Client {self._service!r}{declared}, {count} instance{'' if count == 1 else 's'}>"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            f"client: {self!r} can't be pickled or copied: hand over the name {self._service!r}, and make a client there"
        )

    def _methods(self) -> Mapping[str, object] | None:
        """Return the methods by their names, or None while they are unknown."""
        if self._declared is not None:
            return self._declared.methods
        group = self._registry.find(self._service)
        return None if group is None else group.methods

    def _commands(self) -> Mapping[str, Command | ServiceCommand]:
        """Return the known commands by their names."""
        if self._declared is not None:
            return self._declared.commands
        group = self._registry.find(self._service)
        return {} if group is None else {command.name: command for command in group.info.commands}


class ClientMethod(NativeMethod):
    """A callable method of a service."""

    def __new__(cls, owner: Client, name: str) -> Self:
        declared = None if owner._declared is None else owner._declared.methods[name]
        arity = None if declared is None else declared.function.signature.arity or _ANY_ARITY
        result = None if declared is None else declared.result
        return super().__new__(cls, owner._options.priority, result, arity)

    def __init__(self, owner: Client, name: str) -> None:
        self._client = owner
        self.__name__ = name
        self._title = f"{owner._service}.{name}"
        declared = None if owner._declared is None else owner._declared.methods[name]
        self._signature: Signature | None = None if declared is None else declared.function.signature
        self._streams = None if declared is None else declared.function.streams
        self._timeout = None if declared is None else declared.mark.timeout
        self._result = None if declared is None else declared.result
        self._cost = None if declared is None else declared.cost
        self._has_one_target = owner._options.policy.kind != "all"

    def with_(self, **options: Any) -> ClientMethod:
        """Return the method with other options; see ``Client.with_``."""
        return ClientMethod(self._client.with_(**options), self.__name__)

    def explain(self, *args: Any, **kwargs: Any) -> RoutingExplanation:
        """Return the estimates of the policy "lowest_latency" for a call with these arguments, and
        its last decisions with their reasons. It sends nothing.
        """
        owner = self._client
        group = owner._registry.find(owner._service)
        return (
            RoutingExplanation()
            if group is None
            else explain(group.balancer, self._outbound_call(args, kwargs).facts(group))
        )

    @property
    def __signature__(self) -> inspect.Signature:
        """Signature for callers; ``(*args, **kwargs)`` if unknown."""
        found = self._found()
        if found is None:
            return signatures.UNKNOWN
        return signatures.of_described(found) if isinstance(found, MethodInfo) else signatures.of_declared(found)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """Text for ``help``."""
        found = self._found()
        return "" if found is None else signatures.text(self.__name__, self.__signature__, found)

    def _found(self) -> Method | MethodInfo | None:
        """Return its declaration, or its description by the instances."""
        owner = self._client
        if owner._declared is not None:
            return owner._declared.methods[self.__name__]
        group = owner._registry.find(owner._service)
        return None if group is None else group.methods.get(self.__name__)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call it. ``NativeMethod`` handles the fast path."""
        owner = self._client
        registry, service = owner._registry, owner._service
        group = registry.find(service)
        streams, timeout = self._method_kind(group, args, kwargs)
        if self._has_one_target and group is not None and group.over_links and not has_streams(args, kwargs):
            self._enable_fast_path(group, timeout, bool(streams))
            return self._over_link(args, kwargs, bool(streams))
        sending = OutboundCall(
            registry, service, self.__name__, args, kwargs, owner._options, timeout, self._result, self._cost
        )
        if streams is None:
            return CallOrStream(sending)
        return Stream(sending) if streams else Call(sending)

    async def start(self, *args: Any, **kwargs: Any) -> CommandRun[Any]:
        """Start the command of this name; see ``ClientCommand.start``.

        Raises:
            InvalidArgument: if it is the name of a method.
        """
        owner = self._client
        if self.__name__ in (owner._methods() or ()):
            raise InvalidArgument(f"{self._title}: it is a method: call it, `await client.{self.__name__}(...)`")
        return await ClientCommand(owner, self.__name__).start(*args, **kwargs)

    def _enable_fast_path(self, group: Group, timeout: float | None, streams: bool) -> None:
        """Enable the fast path for the next calls, if it applies."""
        options, version = self._client._options, group.balancer.version
        if version is None or options.instance is not None or self.__name__ not in group.methods:
            return
        policy, method = options.policy, group.methods[self.__name__]
        choice = (policy.kind, policy.explore, options.dice, method.idempotent, self._cost or method.cost_argument)
        headers = dict(options.headers) or None
        timeout_s = options.timeout or timeout or (inf if streams else CALL_TIMEOUT_S)
        service, node = self._client._service, self._client._registry.node
        credit = node.links.stream_credit if streams else 0
        self._goes(
            group, group.balancer, version, choice, headers, service, self.__name__, timeout_s, node.name, credit
        )

    def _outbound_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OutboundCall:
        """Return a call over a link outside of the fast path."""
        group = self._client._registry.find(self._client._service)
        return self._new_call(args, kwargs, self._of(group)[1])

    def _new_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None) -> OutboundCall:
        owner, name = self._client, self.__name__
        registry, service, options = owner._registry, owner._service, owner._options
        return OutboundCall(registry, service, name, args, kwargs, options, timeout, self._result, self._cost)

    def __repr__(self) -> str:
        return f"<method {self._title} of {self._client!r}>"

    def __reduce__(self) -> NoReturn:
        self._client.__reduce__()

    def _run(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it, and block this thread."""
        refuse_loop(self._title)
        owner = self._client
        streams, timeout = self._method_kind(owner._registry.find(owner._service), args, kwargs)
        if streams is None:
            steps.blocking(owner._registry.find_again(owner._service, owner._options.timeout or CALL_TIMEOUT_S))
            streams, timeout = self._of(owner._registry.find(owner._service))
        sending = self._new_call(args, kwargs, timeout)
        return BlockingStream(sending) if streams else Call(sending).run()

    def _method_kind(
        self, group: Group | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bool | None, float | None]:
        """Check the arguments. Return True if the result is a stream, and the timeout; None if
        unknown.
        """
        if self._signature is not None and not self._signature.binds(args, kwargs):
            self._signature.check(self._title, args, kwargs)
        return self._of(group)

    def _of(self, group: Group | None) -> tuple[bool | None, float | None]:
        if self._signature is not None:
            return bool(self._streams), self._timeout
        found = None if group is None else group.methods.get(self.__name__)
        return (None, None) if found is None else (found.stream, found.timeout)


class ClientCommand:
    """A command of a service: ``run = await client.reindex.start(7, key="shard-7")``."""

    def __init__(self, owner: Client, name: str) -> None:
        self._client = owner
        self.__name__ = name
        self._title = f"{owner._service}.{name}"

    async def start(
        self, *args: Any, key: str | None = None, id: str | None = None, priority: str = "normal", **kwargs: Any
    ) -> CommandRun[Any]:
        """Start the command. It runs once the service has an instance, and survives this process.

        Args:
            *args: Its arguments, 512 KiB at most.
            key: Subject of the command, such as a shard or a customer; with ``exclusive="key"`` one
                command per key runs at a time.
            id: An idempotency key: a second start with the same id returns the existing command.
                The default is random.
            priority: Priority in the queue: "urgent", "high", "normal" or "low".
            **kwargs: Its arguments by name.

        Returns:
            The command, stored as durably as the events of streams.

        Raises:
            InvalidArgument: if an argument is missing, not known or not allowed, or the node has no
                storage backend.
            SettingsDiffer: if the id is that of a command with another name, key or arguments.
            PayloadTooLarge: if the arguments are too large.
            StreamFull: if too many commands are stored.
        """
        owner = self._client
        known, result = owner._commands().get(self.__name__), None
        exclusive = known.exclusive if isinstance(known, ServiceCommand) else known and known.mark.exclusive
        if known is not None and not isinstance(known, ServiceCommand):
            known.function.signature.check(self._title, args, kwargs)
            result = known.result
        if exclusive is not None and key is None:
            raise InvalidArgument(f'{self._title}: key: missing: the command is exclusive="key": give a key')
        return await owner._registry.node._start_command(
            owner._service, self.__name__, args, kwargs, key, id, priority, result
        )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise InvalidArgument: commands are started, not called."""
        raise InvalidArgument(
            f"{self._title}: it is a command: start it, `run = await client.{self.__name__}.start(...)`"
        )

    def __repr__(self) -> str:
        return f"<command {self._title} of {self._client!r}>"


class BlockingCommand(Blocking[ClientCommand]):
    """A command of a service for plain threads: ``client.sync.reindex.start(7)``."""

    def start(self, *args: Any, **kwargs: Any) -> SyncCommandRun[Any]:
        """Start the command; see ``ClientCommand.start``."""
        return run(self._node, self._of.start(*args, **kwargs)).sync


class BlockingClient(Blocking[Client]):
    """The methods of a client for plain threads, at ``client.sync``."""

    def __getattr__(self, name: str) -> Any:
        method = self._of.__dict__.get(name) or type(self._of).__getattr__(self._of, name)
        return BlockingCommand(method, self._node) if isinstance(method, ClientCommand) else method._run

    def __dir__(self) -> list[str]:
        return sorted(self._of._methods() or ())

    def __reduce__(self) -> NoReturn:
        self._of.__reduce__()
