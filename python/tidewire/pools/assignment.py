"""Tasks that one worker was given together, and which of them have ended."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, repeat
from typing import Any

from tidewire.pools.results.answers import Done
from tidewire.pools.task import Task, TaskRange, Unit


class Assignment:
    """Units of one worker. Their tasks have positions from 0 on, in which they begin and end.

    Attributes:
        units: The tasks, and ranges of them.
        is_call: All tasks are one call of a function that takes batches, and have one position.
        count: How many positions there are.
        done: How many of them have ended.
        end: The last one, as the worker counts all positions that it was given.
    """

    __slots__ = ("_ends", "count", "done", "end", "is_call", "units")

    def __init__(self, units: list[Unit], is_call: bool = False) -> None:
        self.units = units
        self.is_call = is_call
        self.count = 1 if is_call else units[0].count
        self._ends = [self.count]
        if len(units) > 1 and not is_call:
            self._ends = list(accumulate([unit.count for unit in units]))
            self.count = self._ends[-1]
        self.done = self.end = 0

    def between(self, start: int, stop: int) -> list[Unit]:
        """Return the tasks at the positions from ``start`` up to ``stop``."""
        if len(self.units) == self.count:
            return self.units[start:stop]
        if self.is_call:
            return self.units if start < stop else []
        found: list[Unit] = []
        index = bisect_right(self._ends, start)
        while start < stop:
            unit, end = self.units[index], min(self._ends[index], stop)
            first = start - self._ends[index] + unit.count
            whole = end - start == unit.count
            found.append(unit if whole or isinstance(unit, Task) else unit.part(first, first + end - start))
            start, index = end, index + 1
        return found

    def passed(self, count: int) -> list[Unit]:
        """Note that the next tasks have ended, and return them."""
        start = self.done
        self.done += count
        return self.between(start, self.done)

    def succeeded(self, values: list[Any]) -> list[Done]:
        """Note that the next tasks have ended with these results."""
        units = self.passed(len(values))
        if len(units) == len(values):
            return list(zip(units, repeat(None), values, strict=False))
        done: list[Done] = []
        at = 0
        for unit in units:
            end = at + unit.count
            done.append((unit, None, values[at:end] if isinstance(unit, TaskRange) else values[at]))
            at = end
        return done


def others_of(outcomes: list[Any], kinds: frozenset[type]) -> list[int]:
    """Return which outcomes are of one of these types, and so no plain results."""
    return [] if kinds.isdisjoint(map(type, outcomes)) else [n for n, one in enumerate(outcomes) if type(one) in kinds]
