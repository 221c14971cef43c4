"""Maps: the results of many tasks in the order of their items, with a bounded number of tasks under way."""

from __future__ import annotations

import _thread
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidewire._limits import POOL_MAP_AHEAD
from tidewire.errors import InvalidArgument
from tidewire.pools.answers import Failed, Flight
from tidewire.pools.options import whole

if TYPE_CHECKING:
    from tidewire.pools.core import Core
    from tidewire.pools.task import Task

_PART = 4
_Part = tuple[list[Any], int, Exception | None]
MakeTask = Callable[[tuple[Any, ...], int], "Task"]


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
    """Feeds tasks of one map, and takes their results. Not for two threads at once."""

    def __init__(self, core: Core, make: MakeTask, ahead: int) -> None:
        self._core = core
        self._make = make
        self._ahead = ahead
        self._flight = Flight()
        self._tasks: dict[int, Task] = {}
        self._keys = 0
        self._taken = 0
        self.exhausted = False
        self.broken: Exception | None = None

    @property
    def room(self) -> int:
        """How many tasks should be added now: none until a good part of the look-ahead is free, which saves trips."""
        free = self._ahead - (self._keys - self._taken)
        return 0 if self.exhausted or free < max(1, self._ahead // _PART) else free

    @property
    def over(self) -> bool:
        """Whether all items were read, and all their results taken."""
        return self.exhausted and self._taken == self._keys

    def add(self, items: list[Any], room: int, error: Exception | None) -> None:
        """Submit one task for each item. Fewer items than there was room for, and an error, are the end of the items.

        The error is raised after the results of the items before it.
        """
        self.exhausted, self.broken = error is not None or len(items) < room, error
        tasks = []
        for item in items:
            task = self._make((item,), self._keys)
            task.answer = self._flight
            self._tasks[self._keys] = task
            self._keys += 1
            tasks.append(task)
        self._core.submit_all(tasks)

    def take(self) -> Iterator[Any]:
        """Yield the results that are next. Raises the error of the first task that failed."""
        for result in self._flight.take():
            self._tasks.pop(self._taken)
            self._taken += 1
            if type(result) is Failed:
                raise result.error
            yield result

    def wait(self, wake: Callable[[], None]) -> bool:
        """See ``Flight.wait``."""
        return self._flight.wait(wake)

    def cancel(self) -> None:
        """Drop what nobody will take any more."""
        if self._tasks:
            self._core.cancel(list(self._tasks.values()))


def map_sync(core: Core, make: MakeTask, items: Iterable[Any], ahead: int) -> Iterator[Any]:
    """Yield results in order, and block for the next one."""
    flow, source = Map(core, make, ahead), iter(items)
    gate = _thread.allocate_lock()
    gate.acquire()
    try:
        while not flow.over:
            room = flow.room
            if room:
                flow.add(*_read(source, room))
            elif flow.wait(gate.release):
                gate.acquire()
            yield from flow.take()
        if flow.broken is not None:
            raise flow.broken
    finally:
        flow.cancel()


async def map_async(
    core: Core, make: MakeTask, items: Iterable[Any] | AsyncIterable[Any], ahead: int
) -> AsyncIterator[Any]:
    """Yield results in order, and await the next one."""
    import asyncio

    flow, loop = Map(core, make, ahead), asyncio.get_running_loop()
    read = _reader(items)
    try:
        while not flow.over:
            room = flow.room
            if room:
                flow.add(*await read(room))
            else:
                await _next_result(flow, loop)
            for result in flow.take():
                yield result
        if flow.broken is not None:
            raise flow.broken
    finally:
        flow.cancel()


async def _next_result(flow: Map, loop: Any) -> None:
    ready = loop.create_future()

    def wake() -> None:
        loop.call_soon_threadsafe(lambda: None if ready.done() else ready.set_result(None))

    if flow.wait(wake):
        await ready


def _reader(items: Iterable[Any] | AsyncIterable[Any]) -> Callable[[int], Any]:
    if isinstance(items, AsyncIterable):
        later = items.__aiter__()

        async def read_later(count: int) -> _Part:
            part: list[Any] = []
            try:
                async for item in later:
                    part.append(item)
                    if len(part) == count:
                        break
            # Whatever the items raise is raised to who takes the results, in its place.
            except Exception as error:  # noqa: BLE001
                return part, count, error
            return part, count, None

        return read_later
    if not isinstance(items, Iterable):
        raise InvalidArgument(f"items: {items!r} is not allowed: give an iterable")
    source = iter(items)

    async def read(count: int) -> _Part:
        return _read(source, count)

    return read


def _read(source: Iterator[Any], count: int) -> _Part:
    part: list[Any] = []
    try:
        # Not a list of all: what came before an error counts.
        for item in islice(source, count):
            part.append(item)  # noqa: PERF402
    except Exception as error:  # noqa: BLE001
        return part, count, error
    return part, count, None
