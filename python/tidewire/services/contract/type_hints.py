"""Type hints of functions, with the names that they refer to."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from tidewire.services.instances.context import CallContext

_FRAMES_MAX = 4
_MODULE = re.compile(r"(?:[A-Za-z_]\w*\.|<locals>\.)+")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASYNC_STREAMS = (collections.abc.AsyncIterator, collections.abc.AsyncIterable, collections.abc.AsyncGenerator)
_PLAIN_STREAMS = (collections.abc.Iterator, collections.abc.Generator)


@dataclass(frozen=True)
class TypeHints:
    """The annotations of one function.

    Attributes:
        of: The type of each parameter, and of "return"; Any if unresolved.
        unresolved: The texts of unresolved annotations, by parameter.
    """

    of: Mapping[str, Any] = field(default_factory=dict)
    unresolved: Mapping[str, str] = field(default_factory=dict)


def read(function: Callable[..., Any], names: Mapping[str, Any]) -> TypeHints:
    """Evaluate the annotations of a function one by one: a failure does not affect the others.

    Args:
        function: Function with the annotations.
        names: Values of the names in annotations, besides the globals of the function.
    """
    inner = innermost(function)
    annotations = written_for(inner)
    space = getattr(inner, "__globals__", {})
    found: dict[str, Any] = {}
    unresolved: dict[str, str] = {}
    for name, hint in annotations.items():
        holder = types.SimpleNamespace(__annotations__={name: hint})
        try:
            found.update(typing.get_type_hints(holder, space, dict(names), include_extras=True))
        # An annotation can be any expression, and raise any error: it counts as unresolved.
        except Exception:  # noqa: BLE001
            found[name] = Any
            unresolved[name] = hint if isinstance(hint, str) else repr(hint)
    return TypeHints(found, unresolved)


def written_for(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the unevaluated annotations of a function."""
    try:
        return dict(getattr(function, "__annotations__", None) or {})
    # From Python 3.14 on, the access to annotations evaluates them.
    except NameError:
        return {}


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function below partials, decorators with ``functools.wraps``, and objects with
    ``__call__``.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = getattr(type(function), "__call__", function)  # noqa: B004
    function = inspect.unwrap(function)
    return getattr(function, "__func__", function)


def outer_names(functions: list[Callable[..., Any]], depth: int) -> dict[str, Any]:
    """Return the local variables around a class that its annotations refer to: they are gone later.

    Args:
        functions: Functions with the annotations.
        depth: Number of frames up to the definition of the class.
    """
    texts = [hint for function in functions for hint in written_for(function).values() if isinstance(hint, str)]
    names = set(_NAME.findall(" ".join(texts)))
    found: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe(depth)
    for _ in range(_FRAMES_MAX):
        if frame is None or frame.f_code.co_name == "<module>":
            break
        local = frame.f_locals
        found = {**{name: local[name] for name in names if name in local}, **found}
        frame = frame.f_back
    return found


def is_context(hint: Any) -> bool:
    """Return True if an annotation, evaluated or not, is the context of a call."""
    if isinstance(hint, str):
        return hint.split("|")[0].strip().rpartition(".")[2] == "CallContext"
    return hint is CallContext or CallContext in typing.get_args(hint)


def is_event(hint: Any) -> bool:
    """Return True if an annotation, evaluated or not, is an event of a stream."""
    if isinstance(hint, str):
        return hint.split("|")[0].strip().rpartition(".")[2] == "Event"
    # A program without streams does not load their classes.
    return getattr(hint, "__module__", "") == "tidewire.streams.event" and hint.__name__ == "Event"


def is_progress(hint: Any) -> bool:
    """Return True if an annotation, evaluated or not, is the progress of a command."""
    if isinstance(hint, str):
        return hint.split("|")[0].strip().rpartition(".")[2] == "Progress"
    return getattr(hint, "__module__", "") == "tidewire.streams.progress" and hint.__name__ == "Progress"


def stream_item(hint: Any) -> tuple[bool, Any]:
    """Return True if a type is a stream, and the type of its items."""
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    origin = typing.get_origin(hint) or hint
    if origin in _ASYNC_STREAMS or origin in _PLAIN_STREAMS:
        inner = typing.get_args(hint)
        return True, inner[0] if inner else Any
    return False, hint


def is_async_stream(hint: Any) -> bool:
    """Return True if a type is a stream for ``async for``."""
    return (typing.get_origin(hint) or hint) in _ASYNC_STREAMS


def text(hint: Any) -> str:
    """Return a type in the notation of annotations."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__qualname__
    return _MODULE.sub("", str(hint))
