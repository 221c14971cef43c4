"""Handlers: the functions, coroutines, classes and objects of actors, and the errors of invalid
ones.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidewire.errors import InvalidArgument


class GivenUp(BaseException):
    """Error of a handler whose message is not redelivered. The binding unwraps it.

    Attributes:
        error: The exception of the handler.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True)
class Plan:
    """The parts of an actor that the engine calls."""

    handler: Callable[..., Any]
    takes_context: bool
    coroutine: bool
    started: Callable[..., Any] | None = None
    started_takes_context: bool = False
    stopped: Callable[..., Any] | None = None
    batch: Callable[..., Any] | None = None
    make: Callable[[], Plan] | None = None


def plan(target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
    """Return the plan of an actor.

    Args:
        target: A function, a coroutine function, a class with ``receive``, or an object with
            ``receive``.
        args: Positional arguments for the class.
        kwargs: Keyword arguments for the class.

    Raises:
        InvalidArgument: if the target can't be an actor, or has parameters other than a message and
            a context.
    """
    if inspect.isclass(target):
        first = target(*args, **kwargs)
        return _object_plan(first, f"target: {target.__qualname__}", lambda: plan(target, args, kwargs))
    if args or kwargs:
        arguments = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
        raise InvalidArgument(
            f"target: {_title(target)} takes no arguments at spawn, but {arguments} was given: only a class does; "
            "use functools.partial for a function"
        )
    if hasattr(target, "receive"):
        return _object_plan(target, f"target: {type(target).__qualname__}", None)
    if callable(target):
        has_context = takes_context(target, "target")
        return Plan(target, has_context, is_coroutine(target))
    raise InvalidArgument(
        f"target: {target!r} can't be an actor: give a function, a coroutine function, or a class with a method receive(self, message)"
    )


def check_restart(on_failure: object, target: object, field: str) -> None:
    """Refuse a restart of one object, which would keep its state.

    Raises:
        InvalidArgument: if the target is one object; the error names its class.
    """
    if on_failure == "restart" and not inspect.isclass(target):
        kind = type(target).__qualname__
        raise InvalidArgument(
            f"supervision: on_failure='restart' needs a new {kind} for each restart, and {field} is one object: "
            f"give its class, {field}={kind}"
        )


def takes_context(handler: object, field: str) -> bool:
    """Return True if a handler takes a context besides the message.

    Raises:
        InvalidArgument: if it is not callable, a generator function, or takes other parameters.
    """
    if not callable(handler):
        raise InvalidArgument(f"{field}: {handler!r} is not callable: give a function that takes a message")
    _refuse_generator(handler, field)
    return _count_positional(handler, field) == 2


def behaviour_takes_context(handler: object, field: str, on_loop: bool) -> bool:
    """Return True if the next handler of an actor takes a context besides the message.

    Args:
        handler: The handler of the following messages.
        field: Name of the handler in error messages.
        on_loop: True if the actor runs on the node's event loop, which runs coroutines and plain
            functions.

    Raises:
        InvalidArgument: if it can't handle messages, or is a coroutine function and the actor is
            not on the loop.
    """
    has_context = takes_context(handler, field)
    if is_coroutine(handler) and not on_loop:
        raise InvalidArgument(
            f"{field}: {_title(handler)} is a coroutine function, but this actor was spawned with a plain function and runs on "
            "a thread without an event loop: give a plain function, or spawn the actor with `async def`"
        )
    return has_context


def is_coroutine(handler: object) -> bool:
    """Return True if a call of the handler returns a coroutine."""
    return any(map(inspect.iscoroutinefunction, _callables(handler)))


def _object_plan(actor: object, field: str, make: Callable[[], Plan] | None) -> Plan:
    receive = getattr(actor, "receive", None)
    if receive is None:
        raise InvalidArgument(
            f"{field} has no method receive(self, message): that is where an actor takes its messages"
        )
    started, stopped, batch = (_hook(actor, name, field) for name in ("started", "stopped", "handle_batch"))
    coroutine = is_coroutine(receive)
    for name, hook in (("started", started), ("stopped", stopped)):
        if hook is not None and is_coroutine(hook) and not coroutine:
            raise InvalidArgument(
                f"{field}.{name} is a coroutine function, but receive is not: make both async, or neither"
            )
    if batch is not None:
        if coroutine or is_coroutine(batch):
            raise InvalidArgument(f"{field}.handle_batch goes with a plain receive, not with coroutines")
        _count_positional(batch, f"{field}.handle_batch", (1, 1))
    if stopped is not None:
        _count_positional(stopped, f"{field}.stopped", (0, 0))
    return Plan(
        handler=receive,
        takes_context=takes_context(receive, f"{field}.receive"),
        coroutine=coroutine,
        started=started,
        started_takes_context=started is not None and _count_positional(started, f"{field}.started", (0, 1)) == 1,
        stopped=stopped,
        batch=batch,
        make=make,
    )


def _hook(actor: object, name: str, field: str) -> Callable[..., Any] | None:
    hook = getattr(actor, name, None)
    if hook is not None and not callable(hook):
        raise InvalidArgument(
            f"{field}.{name}: {hook!r} is not callable: make it a method, or choose another name for the attribute"
        )
    if hook is not None:
        _refuse_generator(hook, f"{field}.{name}")
    return hook


def _callables(handler: object) -> tuple[object, object]:
    """Return the functions that a call of the handler may run: itself and its __call__, without
    functools.partial.
    """
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler, getattr(handler, "__call__", None)  # noqa: B004


def _refuse_generator(handler: object, field: str) -> None:
    if any(inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called) for called in _callables(handler)):
        raise InvalidArgument(
            f"{field}: {_title(handler)} is a generator function, which would never run: return a value instead of yielding, "
            "or tell the items to another actor"
        )


_SHAPES = {(1, 2): "(message) or (message, ctx)", (1, 1): "(messages)", (0, 1): "nothing or (ctx)", (0, 0): "nothing"}


def _count_positional(handler: Callable[..., Any], field: str, allowed: tuple[int, int] = (1, 2)) -> int:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        # Builtins without a signature, such as print or list.append, are accepted.
        return allowed[0]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.default is p.empty and p.kind in positional]
    optional = [p for p in parameters if p.default is not p.empty and p.kind in positional]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    low, high = allowed
    too_few = len(required) + len(optional) < low and not variadic
    if len(required) > high or too_few or named:
        raise InvalidArgument(f"{field}: {_title(handler)}{inspect.signature(handler)} must take {_SHAPES[allowed]}")
    if len(required) >= low:
        return len(required)
    context = [p for p in optional if p.name in ("ctx", "context", "_ctx")]
    return max(low, len(required)) if not context else high


def _title(handler: object) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
