"""Backlog of a pool: tasks that wait for a worker, first in, first out and bounded, with a queue of
submits that wait for capacity.

No lock and no clock: the caller holds the lock of the pool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidewire.pools.task import ENDED, HANDED, PARKED, WAITING, Task, Unit, singles

if TYPE_CHECKING:
    from tidewire.pools.results.answers import Answer

_GARBAGE_MIN = 64


class Backlog:
    """The line of waiting units: tasks, and ranges of them. A task dropped from its middle stays as
    a gap until half of the line is gaps.

    Attributes:
        waiting: How many tasks were accepted and wait.
        parked: How many tasks wait for capacity.
        accepted: How many tasks were accepted so far.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._line: deque[Unit] = deque()
        self._parked: deque[Unit] = deque()
        self._gaps = self._parked_gaps = 0
        self.waiting = 0
        self.parked = 0
        self.accepted = 0

    @property
    def full(self) -> bool:
        return self.waiting >= self._capacity

    def add(self, unit: Unit) -> None:
        """Accept tasks, and park those for which there is no capacity."""
        free = 0 if self.parked else self._capacity - self.waiting
        if unit.count <= free:
            self._accept(unit)
            return
        if free > 0:
            self._accept(unit.part(0, free))
            unit = unit.part(free, unit.count)
        self._parked.append(unit)
        self.parked += unit.count

    def _accept(self, unit: Unit) -> None:
        unit.state = WAITING
        self._line.append(unit)
        self.waiting += unit.count
        self.accepted += unit.count

    def take(self, count: int, weight_max: int = 0) -> list[Unit]:
        """Hand out the first ``count`` tasks, or fewer whose payloads weigh ``weight_max`` bytes,
        or one that weighs more.
        """
        taken: list[Unit] = []
        line, left, weight = self._line, count, weight_max or 2**63
        while line and left and weight > 0:
            unit = line[0]
            if unit.state != WAITING:
                line.popleft()
                self._gaps -= 1
                continue
            fit, weight = _fitting(unit, left, weight, bool(taken))
            if fit == 0:
                break
            line.popleft()
            if fit < unit.count:
                line.appendleft(unit.part(fit, unit.count))
                unit = unit.part(0, fit)
            unit.state = HANDED
            taken.append(unit)
            left -= fit
        self.waiting -= count - left
        if self.parked:
            self._admit()
        return taken

    def take_retried(self) -> list[Unit]:
        """Hand out the first task if a worker ended over it: it goes alone, so that it takes no
        other task down.
        """
        first = self.first()
        return self.take(1) if first is not None and first.deliveries else []

    def put_back(self, units: Iterable[Unit]) -> None:
        """Put tasks that had been handed out in front of all others, in their order."""
        for unit in reversed(list(units)):
            unit.state = WAITING
            self._line.appendleft(unit)
            self.waiting += unit.count

    def drop(self, task: Task) -> bool:
        """Take out one task, and tell whether it had been accepted."""
        accepted = task.state == WAITING
        task.state = ENDED
        if accepted:
            self.waiting -= 1
            self._gaps += 1
            self._admit()
        else:
            self.parked -= 1
            self._parked_gaps += 1
        self._compact()
        return accepted

    def drop_all(self, answer: Answer) -> tuple[list[Unit], list[Unit]]:
        """Take out all tasks of one receiver, and return those that had been accepted and those
        that were parked.
        """
        dropped = [unit for unit in self._line if unit.answer is answer and unit.state == WAITING]
        parked = [unit for unit in self._parked if unit.answer is answer and unit.state == PARKED]
        # No gaps: the caller is to drop the last references, without the lock.
        self._line = deque(unit for unit in self._line if unit.answer is not answer)
        self._parked = deque(unit for unit in self._parked if unit.answer is not answer)
        self.waiting -= sum(unit.count for unit in dropped)
        self.parked -= sum(unit.count for unit in parked)
        for unit in (*dropped, *parked):
            unit.state = ENDED
        self._admit()
        return dropped, parked

    def first(self) -> Unit | None:
        """Return the unit that waits longest, or None."""
        while self._line and self._line[0].state != WAITING:
            self._line.popleft()
            self._gaps -= 1
        return self._line[0] if self._line else None

    def clear(self) -> tuple[list[Task], list[Task]]:
        """Take out everything: the waiting tasks and the parked ones."""
        waiting = singles(unit for unit in self._line if unit.state == WAITING)
        self._line.clear()
        self.waiting = self._gaps = 0
        return waiting, self.clear_parked()

    def clear_parked(self) -> list[Task]:
        """Take out the parked tasks."""
        parked = singles(unit for unit in self._parked if unit.state == PARKED)
        self._parked.clear()
        self.parked = self._parked_gaps = 0
        return parked

    def _admit(self) -> None:
        while self._parked and self.waiting < self._capacity:
            unit = self._parked.popleft()
            if unit.state != PARKED:
                self._parked_gaps -= 1
                continue
            free = self._capacity - self.waiting
            if free < unit.count:
                self._parked.appendleft(unit.part(free, unit.count))
                unit = unit.part(0, free)
            self.parked -= unit.count
            self._accept(unit)

    def _compact(self) -> None:
        if self._gaps > len(self._line) - self._gaps + _GARBAGE_MIN:
            self._line = deque(unit for unit in self._line if unit.state == WAITING)
            self._gaps = 0
        if self._parked_gaps > len(self._parked) - self._parked_gaps + _GARBAGE_MIN:
            self._parked = deque(unit for unit in self._parked if unit.state == PARKED)
            self._parked_gaps = 0


def _fitting(unit: Unit, count: int, weight: int, may_be_none: bool) -> tuple[int, int]:
    """Return how many of the first tasks of a unit fit, and the weight that is left: at least one
    task, unless there may be none.
    """
    if unit.payload is None:
        return min(unit.count, count), weight
    payloads = [unit.payload] if isinstance(unit, Task) else unit.payload[unit.start : unit.start + count]
    for fit, payload in enumerate(payloads[: unit.count]):
        weight -= len(payload) if type(payload) is bytes else 0
        if weight < 0 and (fit or may_be_none):
            return fit, 0
    return min(unit.count, count), weight
