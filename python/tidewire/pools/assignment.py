"""Tasks that are assigned to one worker together, and their progress."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, repeat
from typing import Any

from tidewire.pools.results.answers import Done
from tidewire.pools.task import Task, TaskRange, Unit


class Assignment:
    """Units of one worker. Their tasks begin and end in the order of their positions, from 0.

    Attributes:
        units: Tasks and ranges.
        is_call: True if all tasks are one batch, which has one position.
        count: Number of positions.
        done: Number of ended positions.
        end: Last position, in the numbering of all positions of the worker.
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
        units: list[Unit] = []
        index = bisect_right(self._ends, start)
        while start < stop:
            unit, end = self.units[index], min(self._ends[index], stop)
            first = start - self._ends[index] + unit.count
            whole = end - start == unit.count
            units.append(unit if whole or isinstance(unit, Task) else unit.part(first, first + end - start))
            start, index = end, index + 1
        return units

    def end_next(self, count: int) -> list[Unit]:
        """Mark the next tasks as ended, and return them."""
        start = self.done
        self.done += count
        return self.between(start, self.done)

    def succeeded(self, values: list[Any]) -> list[Done]:
        """Mark the next tasks as ended, and return them with these results."""
        units = self.end_next(len(values))
        if len(units) == len(values):
            return list(zip(units, repeat(None), values, strict=False))
        done: list[Done] = []
        at = 0
        for unit in units:
            end = at + unit.count
            done.append((unit, None, values[at:end] if isinstance(unit, TaskRange) else values[at]))
            at = end
        return done


def indexes_of(outcomes: list[Any], kinds: frozenset[type]) -> list[int]:
    """Return the indexes of outcomes of these types, which are not plain results."""
    return [] if kinds.isdisjoint(map(type, outcomes)) else [n for n, one in enumerate(outcomes) if type(one) in kinds]
