"""Redelivery of the tasks of an ended worker process."""

from __future__ import annotations

from tidewire.errors import TaskQuarantined, WorkerLost
from tidewire.pools.core import Core
from tidewire.pools.processes.outcomes import Outcomes
from tidewire.pools.processes.process import ProcessWorker
from tidewire.pools.task import Task, Unit, is_wanted


def lost_tasks(
    core: Core, outcomes: Outcomes, worker: ProcessWorker, position: int, description: str, timed_out: bool
) -> list[Unit]:
    """Return the tasks to redeliver, in their order. This includes the running task at ``position``
    if its limits permit.
    """
    unreported = worker.between(worker.reported + 1, position - 1)
    # Tasks that the worker finished without a report run twice.
    core.counters.redelivered += sum(unit.count for unit in unreported)
    current: list[Unit] = []
    if position and timed_out:
        for task in worker.tasks_at(position):
            outcomes.give_up(task, "timeout", core.options.timeout_error(task))
    elif position:
        current += _retry(core, outcomes, worker.tasks_at(position), description)
    return [*unreported, *current, *worker.between(max(position, worker.reported) + 1, worker.sent)]


def _retry(core: Core, outcomes: Outcomes, tasks: list[Task], description: str) -> list[Task]:
    retried = []
    for task in tasks:
        task.deliveries += 1
        # The pool drops a task without a receiver.
        if not is_wanted(task) or task.deliveries < core.options.max_deliveries:
            retried.append(task)
        else:
            outcomes.give_up(task, *_dead_reason(core.options.name, task, description))
    core.counters.redelivered += len(retried)
    return retried


def _dead_reason(pool: str, task: Task, description: str) -> tuple[str, BaseException]:
    if task.deliveries == 1:
        return "worker_lost", WorkerLost(f"a worker of pool {pool!r} ended while it was at {task!r}: {description}")
    text = f"{task.deliveries} workers of pool {pool!r} ended while they were at {task!r}, the last one: {description}"
    return "quarantined", TaskQuarantined(text)
