"""Batch size of functions that take several tasks in one call. A state machine without a
clock: time is an argument.
"""

from __future__ import annotations

from typing import NamedTuple

from tidewire.pools.options import Batch


class Call(NamedTuple):
    """Call the function with so many tasks now (0: not now), or look again at a later time."""

    size: int
    again_ns: int | None = None


def plan(batch: Batch, now_ns: int, waiting: int, oldest_ns: int, busy: int) -> Call:
    """Decide what an idle worker does with ``waiting`` tasks while ``busy`` others are at work.

    Without others at work nothing can be gained by waiting, so even a single task goes at once.
    With others, a batch may fill until its oldest task has waited for the budget.
    """
    if waiting == 0:
        return Call(0)
    due_ns = oldest_ns + int(batch.budget_ms * 1e6)
    if busy == 0 or waiting >= batch.size_max or now_ns >= due_ns:
        return Call(min(waiting, batch.size_max))
    return Call(0, due_ns)
