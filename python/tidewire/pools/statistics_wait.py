"""Wait for a condition of a pool's statistics, without polling."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire.pools.pool import Pool

Condition = Callable[[dict[str, Any]], object]


class Watch:
    """Looks at the statistics of one pool whenever they may have changed."""

    def __init__(self, pool: Pool, condition: Condition, timeout: float | None) -> None:
        if not callable(condition):
            raise InvalidArgument(f"condition: {condition!r} is not allowed: give a function that takes the statistics")
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout < 0):
            raise InvalidArgument(f"timeout: {timeout!r} is not allowed: give seconds, 0 or more, or None")
        self._pool = pool
        self._condition = condition
        self._timeout = timeout
        self._until = None if timeout is None else monotonic() + timeout

    def look(self) -> dict[str, Any] | None:
        """Return the statistics if they fit. Raises what a submit would, if the pool has ended and
        they never will.
        """
        over = self._pool.ledger is not None
        statistics = self._pool.statistics()
        if self._condition(statistics):
            return statistics
        if over:
            raise self._pool._core.refusal()
        return None

    def left_s(self) -> float | None:
        """Return for how long to wait. Raises TimeoutError if the time is up."""
        if self._until is None:
            return None
        left_s = self._until - monotonic()
        if left_s <= 0:
            raise TimeoutError(f"pool {self._pool.name!r}: the condition does not hold after {self._timeout} s")
        return left_s


def wait_blocking(pool: Pool, condition: Condition, timeout: float | None) -> dict[str, Any]:
    """Block until the statistics fit."""
    watch, changed = Watch(pool, condition, timeout), threading.Event()
    pool._core.watch(changed.set)
    try:
        while (found := watch.look()) is None:
            changed.wait(watch.left_s())
            changed.clear()
        return found
    finally:
        pool._core.unwatch(changed.set)


async def wait(pool: Pool, condition: Condition, timeout: float | None) -> dict[str, Any]:
    """Wait until the statistics fit."""
    # The caller runs in asyncio, so that this loads it for nobody.
    import asyncio

    watch, changed, loop = Watch(pool, condition, timeout), asyncio.Event(), asyncio.get_running_loop()
    told = threading.Event()

    def hear() -> None:
        told.clear()
        changed.set()

    def tell() -> None:
        # At most one call waits for the loop, however long that is busy.
        if not told.is_set():
            told.set()
            loop.call_soon_threadsafe(hear)

    pool._core.watch(tell)
    try:
        while (found := watch.look()) is None:
            await _within(changed, watch.left_s())
            changed.clear()
        return found
    finally:
        pool._core.unwatch(tell)


async def _within(changed: Any, left_s: float | None) -> None:
    from tidewire._futures import ended_within

    await ended_within(changed.wait(), left_s)
