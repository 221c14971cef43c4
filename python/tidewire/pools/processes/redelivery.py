"""Redelivery: the tasks of a worker process that ended."""

from __future__ import annotations

from tidewire.errors import TaskQuarantined, WorkerLost
from tidewire.pools.core import Core
from tidewire.pools.processes.outcomes import Outcomes
from tidewire.pools.processes.process import ProcessWorker
from tidewire.pools.task import Task, Unit, is_wanted


def lost_tasks(core: Core, outcomes: Outcomes, worker: ProcessWorker, at: int, how: str, timed_out: bool) -> list[Unit]:
    """Return the tasks that go out again, in their order. The task that the worker was ``at`` does
    so only if it may.
    """
    before = worker.between(worker.reported + 1, at - 1)
    # Tasks that the worker finished without recording them are done twice.
    core.counters.redelivered += sum(unit.count for unit in before)
    current: list[Unit] = []
    if at and timed_out:
        for task in worker.tasks_at(at):
            outcomes.give_up(task, "timeout", core.options.late(task))
    elif at:
        current += _retried(core, outcomes, worker.tasks_at(at), how)
    return [*before, *current, *worker.between(max(at, worker.reported) + 1, worker.sent)]


def _retried(core: Core, outcomes: Outcomes, tasks: list[Task], how: str) -> list[Task]:
    again = []
    for task in tasks:
        task.deliveries += 1
        # The pool drops a task for which nobody waits.
        if not is_wanted(task) or task.deliveries < core.options.max_deliveries:
            again.append(task)
        else:
            outcomes.give_up(task, *_verdict(core.options.name, task, how))
    core.counters.redelivered += len(again)
    return again


def _verdict(pool: str, task: Task, how: str) -> tuple[str, BaseException]:
    if task.deliveries == 1:
        return "worker_lost", WorkerLost(f"a worker of pool {pool!r} ended while it was at {task!r}: {how}")
    times = f"{task.deliveries} workers of pool {pool!r} ended while they were at {task!r}, the last one: {how}"
    return "quarantined", TaskQuarantined(times)
