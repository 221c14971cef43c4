"""Wait for a condition of a pool's statistics, without polling."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._numbers import check_seconds
from tidewire._runtime.waiter import Waiter
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._runtime.steps import Steps
    from tidewire.pools.pool import Pool

Condition = Callable[[dict[str, Any]], object]


def fits(pool: Pool, condition: Condition, timeout: float | None) -> Steps[dict[str, Any]]:
    """Wait until the statistics fit. Raises what a submit would, if the pool has ended and they
    never will.
    """
    if not callable(condition):
        raise InvalidArgument(f"condition: {condition!r} is not allowed: give a function that takes the statistics")
    check_seconds("timeout", timeout)
    until = None if timeout is None else monotonic() + timeout
    waiter: Waiter | None = None

    def tell() -> None:
        nonlocal waiter
        # At most one call waits for the loop, however long that is busy.
        notified, waiter = waiter, None
        if notified is not None:
            notified.wake()

    pool._core.watch(tell)
    try:
        while True:
            # Before the look: what changes meanwhile is looked at again.
            waiter = changed = Waiter()
            over, statistics = pool.ledger is not None, pool.statistics()
            if condition(statistics):
                return statistics
            if over:
                raise pool._core.refusal()
            changed.left_s = None if until is None else until - monotonic()
            if changed.left_s is not None and changed.left_s <= 0:
                raise TimeoutError(f"pool {pool.name!r}: the condition does not hold after {timeout} s")
            yield changed
    finally:
        pool._core.unwatch(tell)
