"""Maps: the results of many tasks in the order of their items, with a bounded number of tasks under
way.
"""

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

_PART = 4
_READ_NS = 1_000_000
_QUICK = frozenset({type(iter([])), type(iter(())), type(iter(range(0)))})
"""Iterators whose items need no code."""
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
    """Feeds tasks of one map, and takes their results. Not for two threads at once.

    Attributes:
        exhausted: All items were read.
        broken: The error with which they ended, raised after the results of the items before it.
    """

    def __init__(self, pool: Pool, ahead: int) -> None:
        # As long as there is a map, its pool is not collected.
        self._pool = pool
        self._core = pool._started()
        self._ahead = ahead
        self._flight = InFlightTasks()
        # Items may have destructors, and the lock of the pool must not be held when these run.
        self._units: deque[tuple[int, Unit]] = deque()
        self._keys = 0
        self._taken = 0
        self.exhausted = False
        self.broken: BaseException | None = None

    @property
    def free(self) -> int:
        """How many tasks could be added now."""
        return 0 if self.exhausted else self._ahead - (self._keys - self._taken)

    @property
    def capacity(self) -> int:
        """How many tasks should be added now: none until a good part of the look-ahead is free,
        which saves trips.
        """
        free = self.free
        return 0 if free < max(1, self._ahead // _PART) else free

    @property
    def over(self) -> bool:
        """True if all items were read, and all their results taken."""
        return self.exhausted and self._taken == self._keys

    def add(self, items: list[Any], over: bool, error: BaseException | None) -> None:
        """Submit one task for each item. ``over``, perhaps with an error, says that they were the
        last.
        """
        self.exhausted, self.broken = over, error
        unit, unfit = self._pool._packing.range(items, self._keys, self._flight)
        # One item that can't travel ends the map after the items before it.
        if unfit is not None:
            self.exhausted, self.broken = True, unfit
        if unit is not None:
            self._core.submit(unit)
            self._keys += unit.count
            self._units.append((self._keys, unit))

    def take(self) -> Iterator[Any]:
        """Yield the results that are next. Raises the error of the first task that failed."""
        while (results := self._flight.take()) is not None:
            yield from results
            self._taken += len(results)
            while self._units and self._units[0][0] <= self._taken:
                self._units.popleft()

    def wait(self, wake: Callable[[], None]) -> bool:
        """See ``InFlightTasks.wait``."""
        return self._flight.wait(wake)

    def __enter__(self) -> None:
        """Begin to take results."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Drop what nobody will take any more, and raise the error with which the items ended."""
        if self._taken < self._keys:
            self._core.cancel_all(self._flight)
        if kind is None and self.broken is not None:
            raise self.broken


def map_sync(pool: Pool, items: Iterable[Any], ahead: int) -> Iterator[Any]:
    """Yield results in order, and block for the next one."""
    return _results_sync(Map(pool, ahead), items)


def _results_sync(flow: Map, items: Iterable[Any]) -> Iterator[Any]:
    source = iter(items)
    gate = _thread.allocate_lock()
    gate.acquire()
    with flow:
        while not flow.over:
            capacity = flow.capacity
            if capacity:
                flow.add(*_read(source, capacity))
            elif flow.wait(gate.release):
                gate.acquire()
            yield from flow.take()


def map_async(pool: Pool, items: Iterable[Any] | AsyncIterable[Any], ahead: int) -> AsyncIterator[Any]:
    """Yield results in order, and await the next one."""
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
                feeder.go_on()
        finally:
            await feeder.close()


def _read(source: Iterator[Any], count: int) -> _Part:
    """Read so many items, or those that come within a moment, so that slow items do not hold up
    what there is.
    """
    if type(source) in _QUICK:
        part = list(islice(source, count))
        return part, len(part) < count, None
    part = []
    until_ns = time.monotonic_ns() + _READ_NS
    try:
        # Not a list of all: what came before an error counts.
        for item in islice(source, count):
            part.append(item)
            if time.monotonic_ns() >= until_ns:
                return part, False, None
    except Exception as error:  # noqa: BLE001
        return part, True, error
    return part, len(part) < count, None
