"""Assignment of tasks to worker processes."""

from __future__ import annotations

from typing import Any

from tidewire.pools.assignment import Assignment
from tidewire.pools.core import Core
from tidewire.pools.options import Batch
from tidewire.pools.policies.batch_policy import plan
from tidewire.pools.policies.batch_sizer import BatchSizer
from tidewire.pools.processes.process import ProcessWorker
from tidewire.pools.task import Task, TaskRange, Unit, singles

_BATCH_BYTES_MAX = 262_144


AssignedTasks = tuple[ProcessWorker, Assignment, "list[Any] | tuple[Any, ...]"]
"""A worker, its tasks, and their items on the wire."""


class TaskAssigner:
    """Assigner of tasks from the backlog to workers with capacity.

    Attributes:
        sizer: Sizes of batches, from the durations of tasks.
        alert: True if the next task must wake the supervisor: a worker has capacity, and the
            backlog is empty. The lock protects it.
        again_ns: Time of the next check if no event comes first; set when ``next`` returns None.
    """

    def __init__(self, core: Core, workers: dict[int, ProcessWorker]) -> None:
        self._core = core
        self._workers = workers
        self.sizer = BatchSizer()
        self.alert = False
        self.again_ns: int | None = None

    def next(self, now_ns: int) -> AssignedTasks | None:
        """Take the tasks for one worker, or return None if no worker has capacity."""
        self.again_ns = None
        batch = self._core.options.batch
        with self._core.lock:
            if batch is not None:
                return self._next_call(batch, now_ns)
            return self._next_tasks(now_ns)

    def _next_tasks(self, now_ns: int) -> AssignedTasks | None:
        backlog, ready = self._core.backlog, self._open_workers()
        if backlog.waiting:
            for worker in sorted(ready, key=lambda worker: worker.assigned):
                count = self._capacity_of(worker, backlog.waiting, len(ready))
                if count:
                    return self._assign(worker, backlog.take_retried() or backlog.take(count, _BATCH_BYTES_MAX), now_ns)
        self.alert = any(self._capacity_of(worker, 1, 1) for worker in ready)
        return None

    def _capacity_of(self, worker: ProcessWorker, waiting: int, workers: int) -> int:
        return self.sizer.size(waiting, workers, worker.assigned, len(worker.assignments))

    def _assign(self, worker: ProcessWorker, units: list[Unit], now_ns: int) -> AssignedTasks | None:
        if not units:
            return None
        assignment = Assignment(units)
        self._core.counters.count_assignment(assignment.count, units[0].queued_ns, now_ns)
        return worker, assignment, _items(units)

    def _next_call(self, batch: Batch, now_ns: int) -> AssignedTasks | None:
        """Take one batch for an idle worker. A worker has one batch at a time, so that the next one
        can fill.
        """
        backlog, ready = self._core.backlog, self._open_workers()
        idle = [worker for worker in ready if not worker.assigned]
        first = backlog.first()
        if first is None or not idle:
            self.alert = bool(idle)
            return None
        call = plan(batch, now_ns, backlog.waiting, first.queued_ns, len(ready) - len(idle))
        if not call.size and not first.deliveries:
            self.alert, self.again_ns = True, call.again_ns
            return None
        tasks = singles(backlog.take_retried() or backlog.take(call.size))
        self._core.counters.count_assignment(len(tasks), tasks[0].queued_ns, now_ns)
        return idle[0], Assignment(list(tasks), is_call=True), [[task.payload for task in tasks]]

    def _open_workers(self) -> list[ProcessWorker]:
        return [worker for worker in self._workers.values() if worker.state == "ready" and not worker.recall_to]


def _items(units: list[Unit]) -> list[Any] | tuple[Any, ...]:
    """Return the items of a frame, in the format of ``wire.py``."""
    if len(units) == 1 and isinstance(units[0], TaskRange) and units[0].payload is None:
        return tuple(units[0].values[units[0].start : units[0].stop])
    items: list[Any] = []
    for unit in units:
        if isinstance(unit, Task):
            items.append(unit.payload)
        elif unit.payload is None:
            items += zip(unit.values[unit.start : unit.stop], strict=True)
        else:
            items += unit.payload[unit.start : unit.stop]
    return items
