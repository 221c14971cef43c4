"""Batch size of functions that take several tasks in one call. A function without a clock."""

from __future__ import annotations

from typing import NamedTuple

from tidewire.pools.options import Batch


class Call(NamedTuple):
    """Size of a batch to start now (0 for none), and the time of the next decision."""

    size: int
    again_ns: int | None = None


def plan(batch: Batch, now_ns: int, waiting: int, oldest_ns: int, busy: int) -> Call:
    """Decide the next batch of an idle worker for ``waiting`` tasks, with ``busy`` other workers.

    Without busy workers a wait gains nothing, so that even a single task starts at once. Otherwise
    a batch may fill until its oldest task has waited for the budget.
    """
    if waiting == 0:
        return Call(0)
    due_ns = oldest_ns + int(batch.budget_ms * 1e6)
    if busy == 0 or waiting >= batch.size_max or now_ns >= due_ns:
        return Call(min(waiting, batch.size_max))
    return Call(0, due_ns)
