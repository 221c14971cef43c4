"""Outcomes that worker processes have written, stored until the end of the supervisor's turn."""

from __future__ import annotations

import pickle
from typing import Any

from tidewire.errors import RemoteError
from tidewire.pools import failure
from tidewire.pools.core import Core, Ended
from tidewire.pools.processes.process import ProcessWorker
from tidewire.pools.processes.wire import PICKLED, SKIPPED
from tidewire.pools.results.answers import Done
from tidewire.pools.task import Task


class Outcomes:
    """Outcomes that are still to be delivered."""

    def __init__(self) -> None:
        self._done: list[Done] = []
        self._given_up: list[Ended] = []

    def give_up(self, task: Task, reason: str, error: BaseException) -> None:
        """Take note of a task that has no result."""
        self._given_up.append(Ended(task, reason, error))

    def deliver(self, core: Core) -> None:
        """Hand everything over."""
        if self._done or self._given_up:
            done, given_up = self._done, self._given_up
            self._done, self._given_up = [], []
            core.end(done, given_up)

    def take(self, worker: ProcessWorker, outcomes: list[Any]) -> list[Task]:
        """Take the outcomes of a worker, and return the tasks that it was asked to skip."""
        done, popleft = self._done, worker.units.popleft
        skipped: list[Task] = []
        before = len(done) + len(self._given_up)
        for outcome in outcomes:
            unit, kind = popleft(), type(outcome)
            if kind is tuple or kind is list:
                self._take_other(worker, unit, outcome, skipped)
            else:
                done.append((unit if type(unit) is Task else unit[0], None, outcome))  # type: ignore[index]
        worker.handled += len(done) + len(self._given_up) - before
        worker.report(len(outcomes))
        return skipped

    def _take_other(self, worker: ProcessWorker, unit: Any, outcome: Any, skipped: list[Task]) -> None:
        tasks = [unit] if type(unit) is Task else unit
        if type(outcome) is list:
            for task, one in zip(tasks, outcome, strict=True):
                self._take_value(worker, task, one)
        elif outcome[0] == SKIPPED:
            skipped += tasks
        else:
            for task in tasks:
                self._take_value(worker, task, outcome)

    def _take_value(self, worker: ProcessWorker, task: Task, outcome: Any) -> None:
        if type(outcome) is not tuple:
            self._done.append((task, None, outcome))
        elif outcome[0] == PICKLED:
            self._take_pickled(worker, task, outcome[1])
        else:
            worker.errors += 1
            self.give_up(task, "failed", failure.unpack(outcome))

    def _take_pickled(self, worker: ProcessWorker, task: Task, pickled: bytes) -> None:
        try:
            self._done.append((task, None, pickle.loads(pickled)))
        except BaseException as error:  # noqa: BLE001
            worker.errors += 1
            problem = f"the result can't be unpickled here: {failure.message_of(error)}"
            self.give_up(task, "failed", RemoteError(type(error).__name__, problem))
