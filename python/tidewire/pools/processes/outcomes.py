"""Outcomes of worker processes, collected during one round of the supervisor."""

from __future__ import annotations

import pickle
from typing import Any

from tidewire.errors import RemoteError
from tidewire.pools import failure
from tidewire.pools.assignment import indexes_of
from tidewire.pools.core import Core, DeadTask
from tidewire.pools.processes.process import ProcessWorker
from tidewire.pools.processes.wire import PICKLED, SKIPPED
from tidewire.pools.results.answers import Done, Failed
from tidewire.pools.task import Task, Unit, singles

_SPECIAL = frozenset({tuple, list})


class Outcomes:
    """Undelivered outcomes."""

    def __init__(self) -> None:
        self._done: list[Done] = []
        self._dead_tasks: list[DeadTask] = []

    def give_up(self, task: Task, reason: str, error: BaseException) -> None:
        """Add a task without a result."""
        self._dead_tasks.append(DeadTask(task, reason, error))

    def deliver(self, core: Core) -> None:
        """Deliver all outcomes."""
        if self._done or self._dead_tasks:
            done, dead_tasks = self._done, self._dead_tasks
            self._done, self._dead_tasks = [], []
            core.end(done, dead_tasks)

    def take(self, worker: ProcessWorker, outcomes: list[Any]) -> list[Unit]:
        """Add the outcomes of a worker, and return the tasks that it has skipped."""
        assignment, outcomes = worker.take_outcomes(outcomes)
        skipped: list[Unit] = []
        start = 0
        for index in [*_unpickle(outcomes), len(outcomes)]:
            if start < index:
                self._done += assignment.succeeded(outcomes[start:index])
                worker.handled += index - start
            if index < len(outcomes):
                self._take_special(worker, assignment.end_next(1), outcomes[index], skipped)
            start = index + 1
        return skipped

    def _take_special(self, worker: ProcessWorker, units: list[Unit], outcome: Any, skipped: list[Unit]) -> None:
        if type(outcome) is tuple and outcome[0] == SKIPPED:
            skipped += units
            return
        tasks = singles(units)
        worker.handled += len(tasks)
        if type(outcome) is list:
            values, special = outcome, set(_unpickle(outcome))
        else:
            values, special = [outcome] * len(tasks), set(range(len(tasks)))
        for index, (task, value) in enumerate(zip(tasks, values, strict=True)):
            if index in special:
                worker.errors += 1
                self.give_up(task, "failed", value.error if type(value) is Failed else failure.unpack(value))
            else:
                self._done.append((task, None, value))


def _unpickle(outcomes: list[Any]) -> list[int]:
    """Unpickle results in place, and return the indexes of all other outcomes: results that can't
    be unpickled, failures, skipped tasks and batches.
    """
    special = []
    for index in indexes_of(outcomes, _SPECIAL):
        outcome = outcomes[index]
        if type(outcome) is tuple and outcome[0] == PICKLED:
            try:
                outcomes[index] = pickle.loads(outcome[1])
                continue
            except BaseException as error:  # noqa: BLE001
                problem = f"the result can't be unpickled here: {failure.message_of(error)}"
                outcomes[index] = Failed(RemoteError(type(error).__name__, problem))
        special.append(index)
    return special
