"""Readers: iterators over the items of a consumer, a replay or a watch."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidewire._log import log
from tidewire.errors import NodeStopped, TidewireError

if TYPE_CHECKING:
    from tidewire._binding import EventDelivery, StreamReader
    from tidewire.streams.home import Home

_T = TypeVar("_T")


class OpenReaders:
    """The readers of a node, which end with it: their waits end, and events that were not begun
    are returned.

    Attributes:
        with_pending: Consumers with events that were not begun. They stay here until these events
            are returned, even if the program has released them.
    """

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Reader[Any]] = weakref.WeakSet()
        self.with_pending: set[Reader[Any]] = set()

    def add(self, reader: Reader[Any]) -> None:
        """Add a reader."""
        self._all.add(reader)

    def end(self) -> list[StreamReader]:
        """End all readers, and return those with settlements that are not stored yet."""
        readers, self._all = list(self._all), weakref.WeakSet()
        self.with_pending.clear()
        return [reader._core for reader in readers if reader._core.end()]


class Reader(AsyncIterator[_T]):
    """Iterator over items that the node fetches. The node handles outages.

    Args:
        home: The storage backend.
        core: Fetches the items.
        make: Makes an item from its fields and its delivery.
    """

    def __init__(self, home: Home, core: StreamReader, make: Callable[[Any, EventDelivery | None], _T]) -> None:
        self._home, self._core, self._make = home, core, make
        assert home.owner._open_readers is not None
        self._readers = home.owner._open_readers
        self._readers.add(self)

    async def _next(self, timeout: float | None = None) -> _T | None:
        """Wait for the next item. Return None after the timeout, or at the end."""
        deadline = None if timeout is None else monotonic() + timeout
        while (raw := self._core.take()) is None:
            try:
                if not await self._core.wait(None if deadline is None else max(0.0, deadline - monotonic())):
                    self._core.give_back()
                    return None
            except BaseException as error:
                self._core.give_back()
                if isinstance(error, TidewireError) and not isinstance(error, NodeStopped):
                    self._home.owner._check()
                raise
        return self._make(*raw)

    async def __aenter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        raw = self._core.take()
        item = await self._next() if raw is None else self._make(*raw)
        if item is None:
            raise StopAsyncIteration
        return item


class Pages(Reader[_T]):
    """Items of a replay or a watch, fetched page by page: ``async for item in pages``.

    A cancelled read, as by ``asyncio.wait_for(anext(pages), 1.0)``, loses no item: the next read
    continues at the same position. ``aclose`` and ``async with`` end the iterator.
    """

    _is_closed = False

    async def __anext__(self) -> _T:
        if self._is_closed:
            raise StopAsyncIteration
        return await super().__anext__()

    async def aclose(self) -> None:
        """End the iterator, and drop fetched items that were not read."""
        self._is_closed = True
        self._core.give_back()

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        await self.aclose()


def outage_log(title: str) -> Callable[[str | None], None]:
    """Return a function that logs the start of an outage from its error, and its end from None.

    Args:
        title: Title of the consumer, watch or replay.
    """
    since = 0.0

    def log_change(error: str | None) -> None:
        nonlocal since
        if error is None:
            text = "%(title)s goes on: its storage backend was away for %(seconds).1f s"
            log.info("home.back", text, title=title, seconds=monotonic() - since)
        else:
            text, since = "%(title)s waits: its storage backend is away: %(error)s", monotonic()
            log.warning("home.away", text, title=title, error=error)

    return log_change
