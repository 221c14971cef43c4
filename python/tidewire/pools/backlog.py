"""Backlog of a pool: a bounded FIFO queue of tasks, with a queue of submits that wait for capacity.

It has no lock and no clock: the caller holds the lock of the pool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidewire.pools.task import ASSIGNED, ENDED, PARKED, WAITING, Task, Unit, singles

if TYPE_CHECKING:
    from tidewire.pools.results.answers import Answer

_GAPS_MIN = 64


class Backlog:
    """Queue of waiting units: tasks and ranges. A task dropped from the middle remains as a gap
    until half of the queue is gaps.

    Attributes:
        waiting: Number of accepted tasks that wait for a worker.
        parked: Number of tasks that wait for capacity.
        accepted: Total number of accepted tasks.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queue: deque[Unit] = deque()
        self._parked: deque[Unit] = deque()
        self._gaps = self._parked_gaps = 0
        self.waiting = 0
        self.parked = 0
        self.accepted = 0

    @property
    def full(self) -> bool:
        return self.waiting >= self._capacity

    def add(self, unit: Unit) -> None:
        """Accept tasks, and park tasks beyond the capacity."""
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
        self._queue.append(unit)
        self.waiting += unit.count
        self.accepted += unit.count

    def take(self, count: int, weight_max: int = 0) -> list[Unit]:
        """Take the first ``count`` tasks, or fewer with payloads of at most ``weight_max`` bytes in
        total, but at least one.
        """
        taken: list[Unit] = []
        queue, left, weight = self._queue, count, weight_max or 2**63
        while queue and left and weight > 0:
            unit = queue[0]
            if unit.state != WAITING:
                queue.popleft()
                self._gaps -= 1
                continue
            fit, weight = _fitting_count(unit, left, weight, bool(taken))
            if fit == 0:
                break
            queue.popleft()
            if fit < unit.count:
                queue.appendleft(unit.part(fit, unit.count))
                unit = unit.part(0, fit)
            unit.state = ASSIGNED
            taken.append(unit)
            left -= fit
        self.waiting -= count - left
        if self.parked:
            self._admit()
        return taken

    def take_retried(self) -> list[Unit]:
        """Take the first task alone if a worker has ended during it: it might end the next one."""
        first = self.first()
        return self.take(1) if first is not None and first.deliveries else []

    def put_back(self, units: Iterable[Unit]) -> None:
        """Put assigned tasks back at the front of the queue, in their order."""
        for unit in reversed(list(units)):
            unit.state = WAITING
            self._queue.appendleft(unit)
            self.waiting += unit.count

    def drop(self, task: Task) -> bool:
        """Remove one task. Return True if it was accepted, False if it was parked."""
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
        """Remove all tasks of one receiver. Return the accepted ones and the parked ones."""
        dropped = [unit for unit in self._queue if unit.answer is answer and unit.state == WAITING]
        parked = [unit for unit in self._parked if unit.answer is answer and unit.state == PARKED]
        # Without gaps, so that the caller drops the last references outside of the lock.
        self._queue = deque(unit for unit in self._queue if unit.answer is not answer)
        self._parked = deque(unit for unit in self._parked if unit.answer is not answer)
        self.waiting -= sum(unit.count for unit in dropped)
        self.parked -= sum(unit.count for unit in parked)
        for unit in (*dropped, *parked):
            unit.state = ENDED
        self._admit()
        return dropped, parked

    def first(self) -> Unit | None:
        """Return the unit that has waited longest, or None."""
        while self._queue and self._queue[0].state != WAITING:
            self._queue.popleft()
            self._gaps -= 1
        return self._queue[0] if self._queue else None

    def clear(self) -> tuple[list[Task], list[Task]]:
        """Remove and return all waiting tasks and all parked tasks."""
        waiting = singles(unit for unit in self._queue if unit.state == WAITING)
        self._queue.clear()
        self.waiting = self._gaps = 0
        return waiting, self.clear_parked()

    def clear_parked(self) -> list[Task]:
        """Remove and return all parked tasks."""
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
        if self._gaps > len(self._queue) - self._gaps + _GAPS_MIN:
            self._queue = deque(unit for unit in self._queue if unit.state == WAITING)
            self._gaps = 0
        if self._parked_gaps > len(self._parked) - self._parked_gaps + _GAPS_MIN:
            self._parked = deque(unit for unit in self._parked if unit.state == PARKED)
            self._parked_gaps = 0


def _fitting_count(unit: Unit, count: int, weight: int, may_be_none: bool) -> tuple[int, int]:
    """Return how many first tasks of a unit fit, and the remaining weight. It is at least one task
    unless ``may_be_none``.
    """
    if unit.payload is None:
        return min(unit.count, count), weight
    payloads = [unit.payload] if isinstance(unit, Task) else unit.payload[unit.start : unit.start + count]
    for fit, payload in enumerate(payloads[: unit.count]):
        weight -= len(payload) if type(payload) is bytes else 0
        if weight < 0 and (fit or may_be_none):
            return fit, 0
    return min(unit.count, count), weight
