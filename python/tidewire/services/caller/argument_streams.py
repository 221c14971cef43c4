"""Generators as arguments: the callee reads them as streams, in any process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any

from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import refuse_loop
from tidewire._runtime.current import running_loop
from tidewire.errors import CallCancelled, InvalidArgument
from tidewire.services.channel import Channel, Ended, pump
from tidewire.services.instances.outcome import error_for_caller

if TYPE_CHECKING:
    from tidewire.node import Node
    from tidewire.services.instance_transport import Items

_PLAIN = frozenset({str, int, float, bool, bytes, list, dict, tuple, type(None)})
"""Common classes of arguments that are no streams."""


class FedArgument(AsyncIterator[Any], Iterator[Any]):
    """Stream argument of a callee: ``async for``, or ``for`` in a plain function."""

    def __init__(self, items: Items, title: str) -> None:
        self.items = items
        self._title = title

    def __aiter__(self) -> FedArgument:
        return self

    async def __anext__(self) -> Any:
        return await self.items.take()

    def __iter__(self) -> FedArgument:
        return self

    def __next__(self) -> Any:
        refuse_loop(f"{self._title}: `for`", "use `async for`")
        try:
            return self.items.take_blocking()
        except Ended:
            raise StopIteration from None

    async def aclose(self) -> None:
        """Stop reading, and wait until the caller's generator is closed."""
        await steps.awaited(self.items.over())


class ArgumentStream:
    """The caller's side: a task on its loop that moves the items."""

    def __init__(self, generator: Any, channel: Channel) -> None:
        self.channel = channel
        self.cancelled = self.closing = False
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(generator))
        channel.on_close = self._stop

    def cancel(self) -> None:
        """Stop reading the generator and close it, from any thread. A reader gets the items that
        were written, and then an error.
        """
        self.channel.end(CallCancelled(f"{self.channel.title}: its call has ended: read it before that"))
        self._stop()

    def _stop(self) -> None:
        # Once: the cleanup of the generator is not interrupted.
        if self.cancelled:
            return
        self.cancelled = True
        if running_loop() is self._loop:
            self._interrupt()
            return
        # A closed loop has closed its generators.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        if not self.closing:
            self._task.cancel()

    async def finish(self) -> None:
        """Stop reading the generator, and wait until it is closed."""
        self.cancel()
        if running_loop() is self._loop and asyncio.current_task() is not self._task:
            await asyncio.wait([self._task])

    async def _run(self, generator: Any) -> None:
        error: BaseException | None = None
        try:
            await pump(generator if hasattr(generator, "__aiter__") else _Plain(generator), self.channel, self)
        except asyncio.CancelledError as cancelled:
            if not self.cancelled:
                # The loop ends: the stream is incomplete.
                error = error_for_caller(self.channel.title, cancelled)
            raise
        # The callee receives an exception of the generator, after the items before it.
        except BaseException as raised:  # noqa: BLE001
            error = error_for_caller(self.channel.title, raised)
        finally:
            self.channel.end(error)


class _Plain(AsyncIterator[Any]):
    """A plain iterator, advanced on the caller's loop."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)

    async def __anext__(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        close = getattr(self._items, "close", None)
        if close is not None:
            close()


def feed(
    title: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], over_links: bool, node: Node
) -> tuple[tuple[Any, ...], Mapping[str, Any], list[ArgumentStream]]:
    """Replace generators in arguments by streams for the callee: asynchronous ones, and over links
    all iterators. ``stream_ahead`` of the calling node limits the items ahead of a reader.

    Raises:
        InvalidArgument: if there are any and no event loop runs on this thread.
    """
    has_any = has_streams if over_links else has_generators
    if not has_any(args, kwargs):
        return args, kwargs, []
    if running_loop() is None:
        raise InvalidArgument(f"{title}: a generator as an argument needs an event loop: await the call, without .sync")
    feeds: list[ArgumentStream] = []

    def replace_stream(value: Any, name: object) -> Any:
        if not has_any((value,), {}):
            return value
        feeds.append(ArgumentStream(value, Channel(f"{title}: argument {name}", node.serving.stream_ahead)))
        return FedArgument(feeds[-1].channel, feeds[-1].channel.title)

    new_args = tuple(replace_stream(value, at + 1) for at, value in enumerate(args))
    return new_args, {name: replace_stream(value, name) for name, value in kwargs.items()}, feeds


def has_generators(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return True if an argument is an asynchronous generator."""
    for value in args:
        if value.__class__ is AsyncGeneratorType:
            return True
    return bool(kwargs) and any(value.__class__ is AsyncGeneratorType for value in kwargs.values())


def has_streams(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return True if an argument is an iterator, asynchronous or not: links send its items one by
    one.
    """
    for value in args:
        if value.__class__ not in _PLAIN and _is_stream(value.__class__):
            return True
    return bool(kwargs) and any(_is_stream(value.__class__) for value in kwargs.values())


def _is_stream(kind: type) -> bool:
    # An awaitable iterator is a call that was not awaited.
    return hasattr(kind, "__anext__") or (hasattr(kind, "__next__") and not hasattr(kind, "__await__"))
