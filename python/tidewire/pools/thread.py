"""One worker thread, and its observable state."""

from __future__ import annotations

import _thread
import threading
import time
from typing import Any

from tidewire._runtime.task import RunningTask
from tidewire.pools import failure
from tidewire.pools.core import Core, Ended
from tidewire.pools.counters import share
from tidewire.pools.function import Caller, Interrupted, checked_results
from tidewire.pools.results.answers import Done
from tidewire.pools.task import Task, is_cancelled, report_all


class ThreadWorker:
    """One worker thread. The lock of the pool protects its fields."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.gate = _thread.allocate_lock()
        self.gate.acquire()
        self.tasks: list[Task] = []
        self.started_ns = self.since_ns = self.heard_ns = time.monotonic_ns()
        self.busy_ns = 0
        self.handled = self.errors = 0
        self.leaving = False
        self.caller: Caller | None = None
        self.thread: threading.Thread

    def running_task(self) -> RunningTask:
        """Return what ``tw.context()`` tells."""
        tasks = self.tasks
        return RunningTask(lambda: is_cancelled(tasks), lambda *report: report_all(tasks, *report))


def handle(core: Core, caller: Caller, tasks: list[Task]) -> tuple[list[Done], list[Ended]]:
    """Call the function with one task, or with the values of all where tasks come in batches. Never
    raises.
    """
    try:
        if core.options.batch is None:
            return [(tasks[0], None, caller.call(*tasks[0].args, **tasks[0].kwargs))], []
        results = checked_results(caller.call([task.args[0] for task in tasks]), len(tasks))
        return [(task, None, result) for task, result in zip(tasks, results, strict=True)], []
    except Interrupted:
        return [], [Ended(task, "abandoned", core.refusal()) for task in tasks]
    except BaseException as error:  # noqa: BLE001
        failed = failure.for_caller(error)
        return [], [Ended(task, "failed", failed) for task in tasks]


def look(worker: ThreadWorker, now_ns: int) -> dict[str, Any]:
    """Return what a worker is at. A thread has no heartbeat: its signs of life are the begin and
    the end of its tasks.
    """
    tasks, since_ns = worker.tasks, worker.since_ns
    task_ns = now_ns - since_ns if tasks else 0
    return {
        "worker": worker.number,
        "thread": worker.thread.name,
        "state": "busy" if tasks else "ready",
        "handled": worker.handled,
        "errors": worker.errors,
        "busy_share": share(worker.busy_ns + task_ns, now_ns - worker.started_ns),
        "given": len(tasks),
        "heard_ms_ago": (now_ns - worker.heard_ns) / 1e6,
        "last_heartbeat_ms_ago": (now_ns - max(worker.heard_ns, since_ns)) / 1e6,
        "task": tasks[0].number if tasks else None,
        "task_ms": task_ns / 1e6 if tasks else None,
    }
