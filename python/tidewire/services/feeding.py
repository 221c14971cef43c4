"""Asynchronous generators as arguments: the callee reads them as streams, wherever it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from types import AsyncGeneratorType
from typing import Any

from tidewire._current import running_loop
from tidewire.errors import InvalidArgument
from tidewire.services.channel import Channel, Ended, pump
from tidewire.services.outcome import error_for_caller


class Fed(AsyncIterator[Any], Iterator[Any]):
    """What the callee reads: with ``async for``, or with ``for`` in a plain function."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __aiter__(self) -> Fed:
        return self

    async def __anext__(self) -> Any:
        return await self._channel.take()

    def __iter__(self) -> Fed:
        return self

    def __next__(self) -> Any:
        if running_loop() is not None:
            raise InvalidArgument(f"{self._channel.title}: `for` would block this thread's event loop: use `async for`")
        try:
            return self._channel.take_blocking()
        except Ended:
            raise StopIteration from None

    async def aclose(self) -> None:
        """Read no more: the caller's generator is closed."""
        self._channel.close()


class Feed:
    """The caller's side: a task on its loop that moves the items."""

    def __init__(self, generator: AsyncGenerator[Any, Any], channel: Channel) -> None:
        self.channel = channel
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(generator))

    def cancel(self) -> None:
        """Stop reading the generator, and close it, from whichever thread."""
        self.channel.close()
        if running_loop() is self._loop:
            self._task.cancel()
            return
        # A loop that is closed has no generators any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def finish(self) -> None:
        """Stop reading the generator, and wait until it was closed."""
        self.cancel()
        if running_loop() is self._loop and asyncio.current_task() is not self._task:
            await asyncio.wait([self._task])

    async def _run(self, generator: AsyncGenerator[Any, Any]) -> None:
        error: BaseException | None = None
        try:
            await pump(generator, self.channel)
        except asyncio.CancelledError:
            # Whoever cancelled it has closed the channel, and awaits nothing but the end.
            pass
        # What the generator raises is for the callee, after the items before it.
        except BaseException as raised:  # noqa: BLE001
            error = error_for_caller(self.channel.title, raised)
        finally:
            self.channel.end(error)


def feed(
    title: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any], list[Feed]]:
    """Replace asynchronous generators among arguments by what the callee can read.

    Raises:
        InvalidArgument: if there are some and no event loop runs here.
    """
    if not has_generators(args, kwargs):
        return args, kwargs, []
    if running_loop() is None:
        raise InvalidArgument(
            f"{title}: an asynchronous generator as an argument needs an event loop: await the call, without .sync"
        )
    feeds: list[Feed] = []

    def replaced(value: Any, name: object) -> Any:
        if not isinstance(value, AsyncGeneratorType):
            return value
        feeds.append(Feed(value, Channel(f"{title}: argument {name}")))
        return Fed(feeds[-1].channel)

    made = tuple(replaced(value, at + 1) for at, value in enumerate(args))
    return made, {name: replaced(value, name) for name, value in kwargs.items()}, feeds


def has_generators(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether there are asynchronous generators among arguments."""
    for value in args:
        if value.__class__ is AsyncGeneratorType:
            return True
    return bool(kwargs) and any(value.__class__ is AsyncGeneratorType for value in kwargs.values())
