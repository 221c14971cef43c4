"""Descriptions of services: names, texts and schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tidewire.services.contract.names import VISIBILITIES


@dataclass(frozen=True)
class _Info:
    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class MethodInfo(_Info):
    """One method of a service.

    Attributes:
        name: Its name.
        description: The first line of its docstring.
        parameters: JSON Schema (2020-12) of its arguments, as an object by their names.
        result: JSON Schema of its result; of one item, if it is a stream.
        stream: True if its result is a stream.
        idempotent: True if a call may be retried after an unknown outcome.
        timeout: Default timeout of a call in seconds; None leaves it to the caller.
        visibility: Allowed callers: "node", "private" or "public".
        notes: Remarks that the schemas can't express, such as types without a schema.
        safe: True if it changes nothing, so that an HTTP GET may call it.
        prompt: True if its result is messages for a language model: MCP clients list it as a
            prompt.
        cost: Name of the parameter that determines the duration of a call, or None.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    idempotent: bool = False
    timeout: float | None = None
    visibility: str = "private"
    notes: tuple[str, ...] = ()
    safe: bool = False
    prompt: bool = False
    cost: str | None = None

    @property
    def cost_argument(self) -> tuple[int, str] | None:
        """Position and name of the cost argument."""
        names = list(self.parameters.get("properties", ()))
        return None if self.cost is None or self.cost not in names else (names.index(self.cost), self.cost)


@dataclass(frozen=True)
class EventInfo(_Info):
    """One event handler of a service.

    Attributes:
        subject: The pattern of subjects that it handles.
        queue: Queue group whose members share the events, or None if each instance receives all.
        method: The name of the method.
        description: The first line of its docstring.
        message: JSON Schema of its message.
    """

    subject: str
    queue: str | None
    method: str
    description: str = ""
    message: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceCommand(_Info):
    """One declared command of a service.

    Attributes:
        name: Its name.
        description: The first line of its docstring.
        parameters: JSON Schema (2020-12) of its arguments, as an object by their names.
        result: JSON Schema of its result.
        progress: True if it reports progress.
        exclusive: ``"key"`` if a start requires a key.
        timeout: Timeout of one attempt in seconds; None for no limit.
        retries: Number of retries.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    progress: bool = False
    exclusive: str | None = None
    timeout: float | None = None
    retries: int = 0


@dataclass(frozen=True)
class InstanceInfo(_Info):
    """One instance of a service.

    Attributes:
        id: Its id.
        node: The name of the node that serves it.
        version: Its semantic version, such as "1.4.2"; empty if it has none.
        metadata: Its further metadata, by name.
    """

    id: str
    node: str = ""
    version: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceInfo:
    """A service.

    Attributes:
        name: Its name.
        description: The first line of its docstring.
        visibility: Allowed callers: "node", "private" or "public".
        methods: Its methods, in the order of their declaration.
        events: Its event handlers.
        instances: The ids of its instances.
        details: Details of the single instances, in the same order.
        commands: Its commands, which callers start.
    """

    name: str
    description: str = ""
    visibility: str = "private"
    methods: tuple[MethodInfo, ...] = ()
    events: tuple[EventInfo, ...] = ()
    instances: tuple[str, ...] = ()
    details: tuple[InstanceInfo, ...] = ()
    commands: tuple[ServiceCommand, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        values = asdict(self)
        return {**values, **{name: list(values[name]) for name in ("methods", "instances", "details", "commands")}}

    def seen_from(self, origin: str) -> ServiceInfo | None:
        """Return the part that is visible to "node", "private" or "public", or None."""
        if not admits(self.visibility, origin):
            return None
        return replace(self, methods=tuple(method for method in self.methods if admits(method.visibility, origin)))


def admits(visibility: str, origin: str) -> bool:
    """Return True if callers of an origin may call a method of this visibility."""
    return VISIBILITIES.index(visibility) >= VISIBILITIES.index(origin)


def narrower(one: str, other: str) -> str:
    """Return the visibility that admits less."""
    return min(one, other, key=VISIBILITIES.index)
