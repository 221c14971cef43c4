"""Assignment of tasks to worker processes."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidewire.pools.core import Core
from tidewire.pools.options import Batch
from tidewire.pools.policies.batch_policy import plan
from tidewire.pools.policies.batch_sizer import BatchSizer
from tidewire.pools.processes.process import ProcessWorker
from tidewire.pools.task import Task

_BATCH_BYTES_MAX = 262_144


class Assignment(NamedTuple):
    """Work of one worker: the units, and the items that are written to it."""

    worker: ProcessWorker
    units: Any
    items: list[Any]


class TaskAssigner:
    """Takes tasks from the backlog for workers that have room.

    Attributes:
        allotment: Sizes the batches; it learns from what comes back.
        alert: True if the next task must wake the supervisor: a worker has capacity, and the
            backlog is empty. The lock protects it.
        again_ns: When to look again, if nothing happens before; known once ``next`` has returned
            None.
    """

    def __init__(self, core: Core, workers: dict[int, ProcessWorker]) -> None:
        self._core = core
        self._workers = workers
        self.allotment = BatchSizer()
        self.alert = False
        self.again_ns: int | None = None

    def next(self, now_ns: int) -> Assignment | None:
        """Take the tasks for one worker, or return None if nobody can be given more now."""
        self.again_ns = None
        batch = self._core.options.batch
        with self._core.lock:
            if batch is not None:
                return self._next_call(batch, now_ns)
            return self._next_tasks(now_ns)

    def _next_tasks(self, now_ns: int) -> Assignment | None:
        backlog, ready = self._core.backlog, self._open_workers()
        if backlog.waiting:
            for worker in sorted(ready, key=lambda worker: len(worker.units)):
                count = self._capacity_of(worker, backlog.waiting, len(ready))
                if count:
                    return self._handed(worker, backlog.take_retried() or backlog.take(count, _BATCH_BYTES_MAX), now_ns)
        self.alert = any(self._capacity_of(worker, 1, 1) for worker in ready)
        return None

    def _capacity_of(self, worker: ProcessWorker, waiting: int, workers: int) -> int:
        return self.allotment.size(waiting, workers, len(worker.units), len(worker.batch_ends))

    def _handed(self, worker: ProcessWorker, tasks: list[Task], now_ns: int) -> Assignment | None:
        if not tasks:
            return None
        self._core.counters.took(tasks, now_ns)
        return Assignment(worker, tasks, [task.payload for task in tasks])

    def _next_call(self, batch: Batch, now_ns: int) -> Assignment | None:
        """Take one call of a function that takes batches. A worker gets one at a time: the next one
        may grow meanwhile.
        """
        backlog, ready = self._core.backlog, self._open_workers()
        idle = [worker for worker in ready if not worker.units]
        first = backlog.first()
        if first is None or not idle:
            self.alert = bool(idle)
            return None
        call = plan(batch, now_ns, backlog.waiting, first.queued_ns, len(ready) - len(idle))
        if not call.size and not first.deliveries:
            self.alert, self.again_ns = True, call.again_ns
            return None
        tasks = backlog.take_retried() or backlog.take(call.size)
        self._core.counters.took(tasks, now_ns)
        return Assignment(idle[0], [tasks], [[task.payload for task in tasks]])

    def _open_workers(self) -> list[ProcessWorker]:
        return [worker for worker in self._workers.values() if worker.state == "ready" and not worker.recall_to]
