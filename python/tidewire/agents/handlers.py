"""Selection of a message handler: by topic, payload type or kind, or the default handler."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

from tidewire import _handlers
from tidewire.agents.message import KINDS, Message
from tidewire.errors import InvalidArgument

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MARK = "__tidewire_handles__"
_CACHED_MAX = 1_024
_FRAMES_MAX = 3


@dataclass(frozen=True)
class Rule:
    """Filter of one decorated method: the messages that it handles."""

    kind: str | None = None
    topic: str | None = None
    payload: type | None = None


@dataclass(frozen=True)
class Handler:
    """A function of a payload, of a message, or of a payload and its message."""

    call: Callable[..., Any]
    takes_message: bool
    wants_message: bool
    coroutine: bool


def handle(
    function: _Function | None = None, *, kind: str | None = None, topic: str | None = None, payload: type | None = None
) -> Any:
    """Mark a method of an agent as the handler of a kind, a topic or a type of payload.

    ``@tw.handle`` alone uses the annotation of the method's first parameter as the payload type.
    A topic may contain wildcards; the agent subscribes to it at its registration. A topic takes
    precedence over a payload type, and a payload type over a kind.

    Raises:
        InvalidArgument: if the method has no topic, payload type or kind, or the kind is unknown.
    """
    if kind is not None and kind not in KINDS:
        raise InvalidArgument(f"kind: {kind!r} is not allowed: use one of {', '.join(sorted(KINDS))}")
    if topic is not None and not isinstance(topic, str):
        raise InvalidArgument(f"topic: {topic!r} is not allowed: give a subject, such as 'orders.*'")
    if payload is not None and not isinstance(payload, type):
        raise InvalidArgument(f"payload: {payload!r} is not allowed: give a class")

    names = _enclosing_names(sys._getframe(1))

    def mark(function: _Function) -> _Function:
        chosen = payload
        if kind is None and topic is None and payload is None:
            chosen = _annotation(function, names)
        setattr(function, _MARK, Rule(kind, topic, chosen))
        return function

    return mark if function is None else mark(function)


@dataclass
class Table:
    """Handlers of one agent."""

    default: Handler | None = None
    unhandled: Handler | None = None
    topics: list[tuple[str, Handler]] = field(default_factory=list)
    types: dict[type, Handler] = field(default_factory=dict)
    kinds: dict[str, Handler] = field(default_factory=dict)
    _by_topic: dict[str, Handler | None] = field(default_factory=dict, repr=False)
    _by_type: dict[type, Handler | None] = field(default_factory=dict, repr=False)

    def all(self) -> list[Handler]:
        """Return all handlers."""
        fixed = [handler for handler in (self.default, self.unhandled) if handler is not None]
        return [*fixed, *(handler for _, handler in self.topics), *self.types.values(), *self.kinds.values()]

    def only(self) -> Handler | None:
        """Return the default handler if it is the only one."""
        return self.default if not (self.topics or self.types or self.kinds) else None

    def find(self, message: Message) -> Handler | None:
        """Return the handler of a message."""
        found = None
        if self.topics and message.topic is not None:
            found = self._of_topic(message.topic)
        if found is None and self.types:
            found = self._of_type(type(message.payload))
        return found or self.kinds.get(message.kind) or self.default or self.unhandled

    def _of_topic(self, topic: str) -> Handler | None:
        if topic not in self._by_topic:
            if len(self._by_topic) >= _CACHED_MAX:
                self._by_topic.clear()
            candidates = (handler for pattern, handler in self.topics if matches(pattern, topic))
            self._by_topic[topic] = next(candidates, None)
        return self._by_topic[topic]

    def _of_type(self, payload: type) -> Handler | None:
        if payload not in self._by_type:
            if len(self._by_type) >= _CACHED_MAX:
                self._by_type.clear()
            candidates = (self.types[base] for base in payload.__mro__ if base in self.types)
            self._by_type[payload] = next(candidates, None)
        return self._by_type[payload]


def table_of(target: Any) -> Table:
    """Find the handlers of a function or an object.

    Raises:
        InvalidArgument: if there is none, or one has parameters other than a payload and a
            message.
    """
    if (not hasattr(target, "receive") and inspect.isroutine(target)) or not is_object(target):
        if not callable(target) or isinstance(target, type):
            raise InvalidArgument(
                f"handler: {target!r} can't be an agent: give a function, or an object with receive(self, payload) "
                "or with methods marked by @tw.handle"
            )
        return Table(default=_handler(target, "handler"))
    table = Table()
    title = type(target).__qualname__
    for name in ("receive", "unhandled"):
        method = getattr(target, name, None)
        if method is not None:
            setattr(table, "default" if name == "receive" else name, _handler(method, f"{title}.{name}"))
    for name, method in _marked(target):
        _add(table, getattr(method, _MARK), _handler(method, f"{title}.{name}"), method, f"{title}.{name}")
    return table


def matches(pattern: str, topic: str) -> bool:
    """Return True if a topic matches a pattern, by the rules of the engine."""
    tokens, parts = pattern.split("."), topic.split(".")
    for at, token in enumerate(tokens):
        if token == ">":
            return len(parts) > at
        if at >= len(parts) or token not in ("*", parts[at]):
            return False
    return len(tokens) == len(parts)


def _add(table: Table, rule: Rule, handler: Handler, method: Callable[..., Any], field: str) -> None:
    if rule.topic is not None:
        table.topics.append((rule.topic, handler))
    if rule.kind is not None:
        _add_unique(table.kinds, rule.kind, handler, field, f"kind {rule.kind!r}")
    payload = rule.payload
    if rule.topic is None and rule.kind is None and payload is None:
        payload = _annotation(method)
        if payload is None or payload is Message:
            raise InvalidArgument(f"{field}: @tw.handle needs kind=, topic= or payload=, or a class as annotation")
    if payload is not None:
        _add_unique(table.types, payload, handler, field, payload.__qualname__)


def _add_unique(handlers: dict[Any, Handler], key: Any, handler: Handler, field: str, title: str) -> None:
    if key in handlers:
        raise InvalidArgument(f"{field}: another method handles {title} already: keep one of them")
    handlers[key] = handler


def _handler(call: Callable[..., Any], field: str) -> Handler:
    takes_message = _handlers.takes_context(call, field)
    wants_message = not takes_message and _annotation(call) is Message
    return Handler(call, takes_message, wants_message, _handlers.is_coroutine(call))


def _annotation(call: Callable[..., Any], names: Mapping[str, Any] | None = None) -> Any:
    """Return the annotation of the first parameter after self, if it resolves to a class."""
    function = call if inspect.isroutine(call) else type(call).__call__
    try:
        first = next((p for p in inspect.signature(function).parameters.values() if p.name != "self"), None)
    except (TypeError, ValueError):
        return None
    found = None if first is None else first.annotation
    if isinstance(found, str):
        inner = inspect.unwrap(getattr(function, "__func__", function))
        try:
            found = eval(found, getattr(inner, "__globals__", {}), dict(names or {}))
        # An annotation can be any expression; one that fails is no class.
        except Exception:  # noqa: BLE001
            return None
    return found if isinstance(found, type) and found is not inspect.Parameter.empty else None


def _enclosing_names(frame: FrameType | None) -> dict[str, Any]:
    """Return the classes that an annotation in a class body can name: in the body itself and in the
    enclosing functions.
    """
    frames: list[Mapping[str, Any]] = []
    while frame is not None and len(frames) < _FRAMES_MAX and frame.f_code.co_name != "<module>":
        frames.append(frame.f_locals)
        frame = frame.f_back
    return {name: value for found in reversed(frames) for name, value in found.items() if isinstance(value, type)}


def is_object(target: Any) -> bool:
    """Return True if a target is an object with handlers, not a function."""
    return not isinstance(target, type) and (hasattr(target, "receive") or any(True for _ in _marked(target)))


def _marked(target: Any) -> list[tuple[str, Callable[..., Any]]]:
    names = [name for base in reversed(type(target).__mro__) for name, value in vars(base).items() if _is_marked(value)]
    return [(name, getattr(target, name)) for name in dict.fromkeys(names) if _is_marked(getattr(target, name, None))]


def _is_marked(value: Any) -> bool:
    return callable(value) and isinstance(getattr(value, _MARK, None), Rule)
