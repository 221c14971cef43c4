"""Arguments that are functions, called as their annotation requires, locally or remotely."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tidewire.services.contract.type_hints import text

_AWAITED = (Awaitable, Coroutine)


def function(hint: Any, value: Any) -> Any:
    """Return a function with the calling convention of a type: ``Callable[..., Awaitable[T]]`` is
    awaited, ``Callable[..., T]`` blocks.

    Raises:
        TypeError: if the value is not callable.
    """
    if not callable(value):
        raise TypeError(f"Expected `{text(hint)}`, got `{type(value).__name__}`")
    parts = typing.get_args(hint)
    if not parts or parts[-1] is Any:
        return value
    remote = getattr(type(value), "calls_are_remote", False)
    if (typing.get_origin(parts[-1]) or parts[-1]) in _AWAITED:
        return value if remote or inspect.iscoroutinefunction(value) else _awaited(value)
    return value.sync if remote else value


def _awaited(call: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(call, updated=())
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return call_async
