"""Map of a pool: results in the order of the items, with a bounded number of tasks in flight."""

from __future__ import annotations

import _thread
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidewire._limits import POOL_MAP_AHEAD
from tidewire.errors import InvalidArgument
from tidewire.pools.results.answers import InFlightTasks
from tidewire.supervision import whole

if TYPE_CHECKING:
    from tidewire.pools.pool import Pool
    from tidewire.pools.task import Unit

_FREE_SHARE = 4
_READ_NS = 1_000_000
_BUILTIN_ITERATORS = frozenset({type(iter([])), type(iter(())), type(iter(range(0)))})
"""Iterators that run no user code."""
_Part = tuple[list[Any], bool, BaseException | None]


def checked_ahead(ahead: int | None) -> int:
    """Return the look-ahead of a map.

    Raises:
        InvalidArgument: if it is not allowed.
    """
    if ahead is None:
        return POOL_MAP_AHEAD.default
    whole("ahead", ahead, POOL_MAP_AHEAD)
    return ahead


class Map:
    """State of one map: its submitted tasks and their results. Not thread-safe.

    Attributes:
        exhausted: True if all items were read.
        error: Error of the items, raised after the results of the items before it.
    """

    def __init__(self, pool: Pool, ahead: int) -> None:
        # The reference keeps the pool alive during the map.
        self._pool = pool
        self._core = pool._started()
        self._ahead = ahead
        self._flight = InFlightTasks()
        # Keeps the items alive, as their destructors must not run under the lock of the pool.
        self._units: deque[tuple[int, Unit]] = deque()
        self._keys = 0
        self._consumed = 0
        self.exhausted = False
        self.error: BaseException | None = None

    @property
    def free(self) -> int:
        """Number of tasks that the look-ahead permits now."""
        return 0 if self.exhausted else self._ahead - (self._keys - self._consumed)

    @property
    def capacity(self) -> int:
        """Number of tasks to add now: 0 until a quarter of the look-ahead is free, to submit in
        larger parts.
        """
        free = self.free
        return 0 if free < max(1, self._ahead // _FREE_SHARE) else free

    @property
    def over(self) -> bool:
        """True if all items were read, and all results consumed."""
        return self.exhausted and self._consumed == self._keys

    def add(self, items: list[Any], over: bool, error: BaseException | None) -> None:
        """Submit one task for each item. ``over`` marks the last items, with an optional error."""
        self.exhausted, self.error = over, error
        unit, unit_error = self._pool._packing.range(items, self._keys, self._flight)
        # An item that can't be pickled ends the map after the items before it.
        if unit_error is not None:
            self.exhausted, self.error = True, unit_error
        if unit is not None:
            self._core.submit(unit)
            self._keys += unit.count
            self._units.append((self._keys, unit))

    def take(self) -> Iterator[Any]:
        """Yield the next available results. Raises the error of the first failed task."""
        while (results := self._flight.take()) is not None:
            yield from results
            self._consumed += len(results)
            while self._units and self._units[0][0] <= self._consumed:
                self._units.popleft()

    def wait(self, wake: Callable[[], None]) -> bool:
        """See ``InFlightTasks.wait``."""
        return self._flight.wait(wake)

    def __enter__(self) -> None:
        """Begin to consume results."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Cancel tasks without a consumed result, and raise the error of the items."""
        if self._consumed < self._keys:
            self._core.cancel_all(self._flight)
        if kind is None and self.error is not None:
            raise self.error


def map_sync(pool: Pool, items: Iterable[Any], ahead: int) -> Iterator[Any]:
    """Yield results in order, and block for each."""
    return _results_sync(Map(pool, ahead), items)


def _results_sync(flow: Map, items: Iterable[Any]) -> Iterator[Any]:
    source = iter(items)
    ready = _thread.allocate_lock()
    ready.acquire()
    with flow:
        while not flow.over:
            capacity = flow.capacity
            if capacity:
                flow.add(*_read(source, capacity))
            elif flow.wait(ready.release):
                ready.acquire()
            yield from flow.take()


def map_async(pool: Pool, items: Iterable[Any] | AsyncIterable[Any], ahead: int) -> AsyncIterator[Any]:
    """Yield results in order, and await each."""
    if isinstance(items, AsyncIterable):
        return _results_of_stream(Map(pool, ahead), items)
    return _results(Map(pool, ahead), items)


async def _results(flow: Map, items: Iterable[Any]) -> AsyncIterator[Any]:
    import asyncio

    if not isinstance(items, Iterable):
        raise InvalidArgument(f"items: {items!r} is not allowed: give an iterable")
    loop, source = asyncio.get_running_loop(), iter(items)
    with flow:
        while not flow.over:
            capacity = flow.capacity
            if capacity:
                flow.add(*_read(source, capacity))
            else:
                await _next_result(flow, loop)
            for result in flow.take():
                yield result


async def _next_result(flow: Map, loop: Any) -> None:
    ready = loop.create_future()

    def wake() -> None:
        loop.call_soon_threadsafe(lambda: None if ready.done() else ready.set_result(None))

    if flow.wait(wake):
        await ready


async def _results_of_stream(flow: Map, items: AsyncIterable[Any]) -> AsyncIterator[Any]:
    from tidewire.pools.results.async_items import Feeder

    feeder = Feeder(flow, items)
    with flow:
        try:
            while not flow.over:
                await feeder.next_result()
                for result in flow.take():
                    yield result
                feeder.resume()
        finally:
            await feeder.close()


def _read(source: Iterator[Any], count: int) -> _Part:
    """Read up to ``count`` items for at most one millisecond, so that slow items do not delay the
    items before them.
    """
    if type(source) in _BUILTIN_ITERATORS:
        part = list(islice(source, count))
        return part, len(part) < count, None
    part = []
    deadline_ns = time.monotonic_ns() + _READ_NS
    try:
        # Read one by one, to keep the items before an error.
        for item in islice(source, count):
            part.append(item)
            if time.monotonic_ns() >= deadline_ns:
                return part, False, None
    except Exception as error:  # noqa: BLE001
        return part, True, error
    return part, len(part) < count, None
