"""One worker thread, its present tasks, and its observable state."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from typing import Any

from tidewire._runtime.task import RunningTask
from tidewire.pools.assignment import Assignment, others_of
from tidewire.pools.core import Core, Ended
from tidewire.pools.counters import share
from tidewire.pools.failure import for_caller
from tidewire.pools.function import Caller, Interrupted, checked_results
from tidewire.pools.results.answers import Done, Failed
from tidewire.pools.task import Task, TaskRange, Unit, is_cancelled, report_all, singles

_HOLD_NS = 4_000_000
_FAILED = frozenset({Failed})


class ThreadTurn:
    """Tasks that a thread was given together, and their outcomes so far.

    The thread takes one position after another from an iterator, without a lock. A recall takes all
    that are left, which is one step of the interpreter. So each position is taken once.

    Attributes:
        index: The position that was begun last.
        since_ns: When it began; set when the one before it has ended.
        worked_ns: Time in the function that was not learnt from. Waits of the thread for locks of
            the pool and the interpreter are no part of it.
        outcomes: Results, and errors as ``Failed``, that were not delivered.
        stop: The first position that was taken back.
        is_over: Its tasks have ended, whatever the thread still does.
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
        """Call the function for each position, and flush from time to time. Never raises."""
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
            if now_ns - begin_ns > _HOLD_NS:
                self.worked_ns += now_ns - begin_ns
                flush()
                self.since_ns = begin_ns = clock()
        self.worked_ns += self.since_ns - begin_ns

    def current(self) -> list[Task]:
        """Return the tasks that the thread is at."""
        return singles(self.assignment.between(self.index, self.index + 1))

    def recall(self) -> list[Unit]:
        """Take back the tasks that were not begun. The lock of the pool must be held."""
        stop = self.stop
        self.stop -= len(list(self._positions))
        return self.assignment.between(self.stop, stop) if self.stop < stop else []

    @property
    def behind(self) -> int:
        """How many positions were not begun."""
        behind: int = self._positions.__length_hint__()  # type: ignore[attr-defined]
        return behind

    @property
    def is_late(self) -> bool:
        """True if a position that was begun has not ended. Known after a recall."""
        return self.assignment.done + len(self.outcomes) < self.stop

    def settle(self, core: Core) -> tuple[list[Done], list[Ended]]:
        """Take out the outcomes that are there. The lock of the pool must be held."""
        outcomes, assignment = self.outcomes[:], self.assignment
        # The thread may append meanwhile, so that it keeps the list.
        del self.outcomes[: len(outcomes)]
        if _FAILED.isdisjoint(map(type, outcomes)):
            return _succeeded(assignment, outcomes) if outcomes else [], []
        done: list[Done] = []
        given_up: list[Ended] = []
        start = 0
        for index in [*others_of(outcomes, _FAILED), len(outcomes)]:
            if start < index:
                done += _succeeded(assignment, outcomes[start:index])
            if index < len(outcomes):
                given_up += _given_up(core, assignment.passed(1), outcomes[index].error)
            start = index + 1
        return done, given_up


def _calls(caller: Caller, assignment: Assignment) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return a function of one value, and the values for which it is called."""
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
    return [(unit, None, result) for unit, result in zip(assignment.passed(1), results[0], strict=True)]


def _given_up(core: Core, units: list[Unit], error: BaseException) -> list[Ended]:
    if isinstance(error, Interrupted):
        return [Ended(unit, "abandoned", core.refusal()) for unit in units]
    failed = for_caller(error)
    return [Ended(unit, "failed", failed) for unit in units]


class ThreadWorker:
    """One worker thread. The lock of the pool protects its fields."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.gate = _thread.allocate_lock()
        self.gate.acquire()
        self.turn: ThreadTurn | None = None
        self.started_ns = self.heard_ns = time.monotonic_ns()
        self.busy_ns = 0
        self.handled = self.errors = 0
        self.leaving = False
        self.caller: Caller | None = None
        self.thread: threading.Thread

    def running_task(self) -> RunningTask:
        """Return what ``tw.context()`` tells."""
        tasks = self.current()
        return RunningTask(lambda: is_cancelled(tasks), lambda *report: report_all(tasks, *report))

    def current(self) -> list[Task]:
        """Return the tasks that it is at."""
        return [] if self.turn is None else self.turn.current()


def look(worker: ThreadWorker, now_ns: int) -> dict[str, Any]:
    """Return what a worker is at. A thread has no heartbeat: its signs of life are the begin and
    the end of its tasks.
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
        "given": len(tasks) + (0 if turn is None else turn.behind),
        "heard_ms_ago": (now_ns - worker.heard_ns) / 1e6,
        "last_heartbeat_ms_ago": (now_ns - max(worker.heard_ns, since_ns if tasks else 0)) / 1e6,
        "task": tasks[0].number if tasks else None,
        "task_ms": (now_ns - since_ns) / 1e6 if tasks else None,
    }
