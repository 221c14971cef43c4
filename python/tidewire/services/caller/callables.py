"""Arguments that are functions: called as the annotation says, wherever they live."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tidewire.services.contract.type_hints import text

_AWAITED = (Awaitable, Coroutine)


def function(hint: Any, value: Any) -> Any:
    """Return a function that is called as a type says: ``Callable[..., Awaitable[T]]`` is awaited,
    ``Callable[..., T]`` blocks.

    Raises:
        TypeError: if it is no function.
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
    async def later(*args: Any, **kwargs: Any) -> Any:
        made = call(*args, **kwargs)
        return await made if inspect.isawaitable(made) else made

    return later
