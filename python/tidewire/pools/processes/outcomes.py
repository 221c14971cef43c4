"""Outcomes that worker processes have written, stored until the end of the supervisor's turn."""

from __future__ import annotations

import pickle
from typing import Any

from tidewire.errors import RemoteError
from tidewire.pools import failure
from tidewire.pools.assignment import others_of
from tidewire.pools.core import Core, Ended
from tidewire.pools.processes.process import ProcessWorker
from tidewire.pools.processes.wire import PICKLED, SKIPPED
from tidewire.pools.results.answers import Done, Failed
from tidewire.pools.task import Task, Unit, singles

_OTHER = frozenset({tuple, list})


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

    def take(self, worker: ProcessWorker, outcomes: list[Any]) -> list[Unit]:
        """Take the outcomes of a worker, and return the tasks that it was asked to skip."""
        assignment, outcomes = worker.take_outcomes(outcomes)
        skipped: list[Unit] = []
        start = 0
        for index in [*_unpickle(outcomes), len(outcomes)]:
            if start < index:
                self._done += assignment.succeeded(outcomes[start:index])
                worker.handled += index - start
            if index < len(outcomes):
                self._take_other(worker, assignment.passed(1), outcomes[index], skipped)
            start = index + 1
        return skipped

    def _take_other(self, worker: ProcessWorker, units: list[Unit], outcome: Any, skipped: list[Unit]) -> None:
        if type(outcome) is tuple and outcome[0] == SKIPPED:
            skipped += units
            return
        tasks = singles(units)
        worker.handled += len(tasks)
        if type(outcome) is list:
            values, others = outcome, set(_unpickle(outcome))
        else:
            values, others = [outcome] * len(tasks), set(range(len(tasks)))
        for index, (task, value) in enumerate(zip(tasks, values, strict=True)):
            if index in others:
                worker.errors += 1
                self.give_up(task, "failed", value.error if type(value) is Failed else failure.unpack(value))
            else:
                self._done.append((task, None, value))


def _unpickle(outcomes: list[Any]) -> list[int]:
    """Unpickle results in their places, and return the places of all others: results that can't be
    unpickled, failures, skipped tasks and calls with several results.
    """
    others = []
    for index in others_of(outcomes, _OTHER):
        outcome = outcomes[index]
        if type(outcome) is tuple and outcome[0] == PICKLED:
            try:
                outcomes[index] = pickle.loads(outcome[1])
                continue
            except BaseException as error:  # noqa: BLE001
                problem = f"the result can't be unpickled here: {failure.message_of(error)}"
                outcomes[index] = Failed(RemoteError(type(error).__name__, problem))
        others.append(index)
    return others
