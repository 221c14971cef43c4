"""One worker thread, its present tasks and its statistics."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from typing import Any

from tidewire._runtime.task import RunningTask
from tidewire.pools.assignment import Assignment, indexes_of
from tidewire.pools.core import Core, DeadTask
from tidewire.pools.counters import share
from tidewire.pools.failure import for_caller
from tidewire.pools.function import Caller, Interrupted, checked_results
from tidewire.pools.results.answers import Done, Failed
from tidewire.pools.task import Task, TaskRange, Unit, is_cancelled, report_all, singles

_FLUSH_NS = 4_000_000
_FAILED = frozenset({Failed})


class ThreadTurn:
    """Tasks that are assigned to a thread together, and their outcomes so far.

    The thread takes positions from an iterator without a lock. A recall exhausts the iterator in
    one atomic step of the interpreter, so that each position is taken once.

    Attributes:
        index: Position that was begun last.
        since_ns: Start time of this position: the end of the one before.
        worked_ns: Time in the function since the last update of the batch sizer, without waits for
            locks of the pool and the interpreter.
        outcomes: Undelivered results, with errors as ``Failed``.
        stop: First recalled position.
        is_over: True if its tasks have ended, even if the thread still runs one.
    """

    def __init__(self, assignment: Assignment, now_ns: int) -> None:
        self.assignment = assignment
        self.since_ns = self.flushed_ns = now_ns
        self.worked_ns = 0
        self.outcomes: list[Any] = []
        self.index = 0
        self.stop = assignment.count
        self.is_over = False
        self._positions = iter(range(assignment.count))

    def run(self, caller: Caller, flush: Callable[[], object]) -> None:
        """Call the function for each position, and flush outcomes every 4 ms. Never raises."""
        call, items = _calls(caller, self.assignment)
        append, clock = self.outcomes.append, time.monotonic_ns
        self.since_ns = begin_ns = clock()
        for index in self._positions:
            self.index = index
            try:
                result = call(items[index])
            except BaseException as error:  # noqa: BLE001
                result = Failed(error)
            append(result)
            self.since_ns = now_ns = clock()
            if now_ns - begin_ns > _FLUSH_NS:
                self.worked_ns += now_ns - begin_ns
                flush()
                self.since_ns = begin_ns = clock()
        self.worked_ns += self.since_ns - begin_ns

    def current(self) -> list[Task]:
        """Return the running tasks of the thread."""
        return singles(self.assignment.between(self.index, self.index + 1))

    def recall(self) -> list[Unit]:
        """Recall the tasks that were not begun. The lock of the pool must be held."""
        stop = self.stop
        self.stop -= len(list(self._positions))
        return self.assignment.between(self.stop, stop) if self.stop < stop else []

    @property
    def pending(self) -> int:
        """Number of positions that were not begun."""
        pending: int = self._positions.__length_hint__()  # type: ignore[attr-defined]
        return pending

    @property
    def is_late(self) -> bool:
        """True if a begun position has not ended. Valid after a recall."""
        return self.assignment.done + len(self.outcomes) < self.stop

    def settle(self, core: Core) -> tuple[list[Done], list[DeadTask]]:
        """Remove and return the outcomes so far. The lock of the pool must be held."""
        outcomes, assignment = self.outcomes[:], self.assignment
        # Deleted in place, as the thread may append to the list.
        del self.outcomes[: len(outcomes)]
        if _FAILED.isdisjoint(map(type, outcomes)):
            return _succeeded(assignment, outcomes) if outcomes else [], []
        done: list[Done] = []
        dead_tasks: list[DeadTask] = []
        start = 0
        for index in [*indexes_of(outcomes, _FAILED), len(outcomes)]:
            if start < index:
                done += _succeeded(assignment, outcomes[start:index])
            if index < len(outcomes):
                dead_tasks += _dead_tasks(core, assignment.end_next(1), outcomes[index].error)
            start = index + 1
        return done, dead_tasks


def _calls(caller: Caller, assignment: Assignment) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return a function of one item, and the items of its calls."""
    units, function = assignment.units, caller.call
    if assignment.is_call:
        values = [unit.args[0] for unit in singles(units)]
        return lambda values: checked_results(function(values), len(values)), [values]
    if caller.traced is not None:
        return lambda task: function(*task.payload, *task.args, **task.kwargs), singles(units)
    first = units[0]
    if len(units) == 1 and first.__class__ is TaskRange:
        return function, first.values[first.start : first.stop]
    return lambda task: function(*task.args, **task.kwargs), units if assignment.count == 1 else singles(units)


def _succeeded(assignment: Assignment, results: list[Any]) -> list[Done]:
    if not assignment.is_call:
        return assignment.succeeded(results)
    return [(unit, None, result) for unit, result in zip(assignment.end_next(1), results[0], strict=True)]


def _dead_tasks(core: Core, units: list[Unit], error: BaseException) -> list[DeadTask]:
    if isinstance(error, Interrupted):
        return [DeadTask(unit, "abandoned", core.refusal()) for unit in units]
    caller_error = for_caller(error)
    return [DeadTask(unit, "failed", caller_error) for unit in units]


class ThreadWorker:
    """One worker thread. The lock of the pool protects its attributes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.wakeup = _thread.allocate_lock()
        self.wakeup.acquire()
        self.turn: ThreadTurn | None = None
        self.started_ns = self.heard_ns = time.monotonic_ns()
        self.busy_ns = 0
        self.handled = self.errors = 0
        self.is_leaving = False
        self.caller: Caller | None = None
        self.thread: threading.Thread

    def running_task(self) -> RunningTask:
        """Return the running task for ``tw.context()``."""
        tasks = self.current()
        return RunningTask(lambda: is_cancelled(tasks), lambda *report: report_all(tasks, *report))

    def current(self) -> list[Task]:
        """Return the running tasks of the worker."""
        return [] if self.turn is None else self.turn.current()


def worker_statistics(worker: ThreadWorker, now_ns: int) -> dict[str, Any]:
    """Return the statistics of a worker. A thread has no heartbeat: the start and the end of its
    tasks count as heartbeats.
    """
    turn = worker.turn
    tasks = [] if turn is None else turn.current()
    since_ns = now_ns if turn is None else turn.since_ns
    busy_ns = worker.busy_ns + (0 if turn is None else now_ns - turn.flushed_ns)
    return {
        "worker": worker.number,
        "thread": worker.thread.name,
        "state": "busy" if tasks else "ready",
        "handled": worker.handled,
        "errors": worker.errors,
        "busy_share": share(busy_ns, now_ns - worker.started_ns),
        "given": len(tasks) + (0 if turn is None else turn.pending),
        "heard_ms_ago": (now_ns - worker.heard_ns) / 1e6,
        "last_heartbeat_ms_ago": (now_ns - max(worker.heard_ns, since_ns if tasks else 0)) / 1e6,
        "task": tasks[0].number if tasks else None,
        "task_ms": (now_ns - since_ns) / 1e6 if tasks else None,
    }
