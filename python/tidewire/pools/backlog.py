"""Backlog of a pool: tasks that wait for a worker, first in, first out and bounded, with a queue of
submits that wait for capacity.

No lock and no clock: the caller holds the lock of the pool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidewire.pools.task import ENDED, HANDED, PARKED, WAITING, Task

_GARBAGE_MIN = 64


class Backlog:
    """The line of waiting tasks. A task dropped from its middle stays as a gap until half of the
    line is gaps.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._line: deque[Task] = deque()
        self._parked: deque[Task] = deque()
        self.waiting = 0
        self.parked = 0
        self.accepted = 0

    @property
    def full(self) -> bool:
        return self.waiting >= self._capacity

    def add(self, task: Task) -> None:
        """Accept a task, or park it if the line is full."""
        if self.waiting < self._capacity:
            task.state = WAITING
            self._line.append(task)
            self.waiting += 1
            self.accepted += 1
        else:
            self._parked.append(task)
            self.parked += 1

    def take(self, count: int, weight_max: int = 0) -> list[Task]:
        """Hand out the first ``count`` tasks, or fewer whose payloads weigh ``weight_max`` bytes,
        or one that weighs more.
        """
        taken: list[Task] = []
        line, weight = self._line, 0
        while line and len(taken) < count:
            task = line[0]
            if task.state == WAITING:
                if weight_max and type(task.payload) is bytes:
                    weight += len(task.payload)
                    if weight > weight_max and taken:
                        break
                task.state = HANDED
                taken.append(task)
            line.popleft()
        self.waiting -= len(taken)
        if self.parked:
            self._admit()
        return taken

    def take_retried(self) -> list[Task]:
        """Hand out the first task if a worker ended over it: it goes alone, so that it takes no
        other task down.
        """
        first = self.first()
        return self.take(1) if first is not None and first.deliveries else []

    def put_back(self, tasks: Iterable[Task]) -> None:
        """Put tasks that had been handed out in front of all others, in their order."""
        back = list(tasks)
        for task in back:
            task.state = WAITING
        self._line.extendleft(reversed(back))
        self.waiting += len(back)

    def drop(self, task: Task) -> bool:
        """Take out one task, and tell whether it had been accepted."""
        accepted = task.state == WAITING
        task.state = ENDED
        if accepted:
            self.waiting -= 1
            self._admit()
        else:
            self.parked -= 1
        self._compact()
        return accepted

    def first(self) -> Task | None:
        """Return the task that waits longest, or None."""
        while self._line and self._line[0].state != WAITING:
            self._line.popleft()
        return self._line[0] if self._line else None

    def clear(self) -> tuple[list[Task], list[Task]]:
        """Take out everything: the waiting tasks and the parked ones."""
        waiting = [task for task in self._line if task.state == WAITING]
        self._line.clear()
        self.waiting = 0
        return waiting, self.clear_parked()

    def clear_parked(self) -> list[Task]:
        """Take out the parked tasks."""
        parked = [task for task in self._parked if task.state == PARKED]
        self._parked.clear()
        self.parked = 0
        return parked

    def _admit(self) -> None:
        while self._parked and self.waiting < self._capacity:
            task = self._parked.popleft()
            if task.state == PARKED:
                self.parked -= 1
                self.add(task)

    def _compact(self) -> None:
        if len(self._line) - self.waiting > self.waiting + _GARBAGE_MIN:
            self._line = deque(task for task in self._line if task.state == WAITING)
        if len(self._parked) - self.parked > self.parked + _GARBAGE_MIN:
            self._parked = deque(task for task in self._parked if task.state == PARKED)
