"""Stream arguments: any iterable, read as the method declares, with items of the declared type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec

from tidewire.errors import InvalidArgument
from tidewire.services.contract.names import short
from tidewire.services.contract.type_hints import is_async_stream, text

Convert = Callable[[Any], Any]
_NEVER = (str, bytes, bytearray, dict)


def typed_stream(hint: Any, item: Any, convert: Convert | None, value: Any) -> Any:
    """Return a value as a stream of a type; the same object if it needs no conversion.

    Raises:
        TypeError: if it is not iterable.
    """
    asynchronous = hasattr(value, "__aiter__")
    if isinstance(value, _NEVER) or not (asynchronous or hasattr(value, "__iter__")):
        raise TypeError(f"Expected `{text(hint)}`, got `{type(value).__name__}`")
    if not is_async_stream(hint):
        if not hasattr(value, "__iter__"):
            raise TypeError(f"Expected `{text(hint)}`, got `{type(value).__name__}`")
        return iter(value) if convert is None else _Typed(iter(value), item, convert)
    if asynchronous:
        return value if convert is None else _AsyncTyped(value.__aiter__(), item, convert)
    return _AsyncTyped(_PlainIterator(iter(value)), item, convert)


def named(argument: Any, title: str) -> Any:
    """Return a converted argument. A stream uses the title in its errors."""
    if isinstance(argument, _Items):
        argument.title = title
    return argument


class _Items:
    """Items that are converted one by one."""

    title = "a stream"

    def __init__(self, items: Any, item: Any, convert: Convert | None) -> None:
        self._items = items
        self._item = item
        self._convert = convert
        self._count = 0

    def _fitting(self, value: Any) -> Any:
        self._count += 1
        if self._convert is None:
            return value
        try:
            return self._convert(value)
        except (msgspec.ValidationError, TypeError, ValueError, NotImplementedError, RecursionError) as error:
            raise InvalidArgument(
                f"{self.title}: item {self._count}: {short(value)} is not allowed: give {text(self._item)} ({error})"
            ) from None


class _AsyncTyped(_Items, AsyncIterator[Any]):
    async def __anext__(self) -> Any:
        return self._fitting(await self._items.__anext__())

    async def aclose(self) -> None:
        """Stop reading."""
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


class _Typed(_Items, Iterator[Any]):
    def __next__(self) -> Any:
        return self._fitting(next(self._items))

    def close(self) -> None:
        """Stop reading."""
        close = getattr(self._items, "close", None)
        if close is not None:
            close()


class _PlainIterator(AsyncIterator[Any]):
    """A plain iterator, read with ``async for``."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    async def __anext__(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None
