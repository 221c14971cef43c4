"""Health check of worker processes: stalled workers, timeouts, and recalls of queued tasks.

A worker is killed in four cases: it does not start, a task exceeds ``task_timeout``, a cancelled
task runs for 5 more seconds or is to be killed, or a worker with tasks has had no heartbeat for
``heartbeat_timeout``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidewire._limits import POOL_START_MS
from tidewire.pools.core import Core
from tidewire.pools.processes.process import ProcessWorker
from tidewire.pools.task import is_cancelled

_SLOW_NS = 10_000_000
_RECALL_NS = 1_000_000
_SUSPECT_MAX_NS = 1_000_000_000
_REPORT_NS = 1_000_000_000
_CANCEL_GRACE_NS = 5_000_000_000


class WorkerProbe(Protocol):
    """Actions of the health check on a worker."""

    def read(self, worker: ProcessWorker) -> None: ...
    def end(self, worker: ProcessWorker, reason: str = "", timed_out: bool = False) -> None: ...
    def is_active(self, worker: ProcessWorker) -> bool: ...


class Health:
    """Health check of one worker at a time."""

    def __init__(self, core: Core, probe: WorkerProbe) -> None:
        self._core = core
        self._probe = probe
        self._timeout_ns = _ns(core.options.task_timeout)
        self._heartbeat_ns = _ns(core.options.heartbeat_timeout)

    def watch(self, worker: ProcessWorker, now_ns: int) -> int | None:
        """Check a worker, and return the time of the next check."""
        if worker.state == "starting":
            return self._watch_start(worker, now_ns)
        if worker.recall_ns:
            return self._watch_recall(worker, now_ns)
        if not worker.assigned:
            return None
        at = worker.current_position()
        if at and self._timeout_ns is not None and now_ns >= worker.current_since_ns() + self._timeout_ns:
            self._kill(worker, at, "killed after task_timeout", timed_out=True)
            return now_ns
        silence_ns = self._silence_limit_ns(worker, now_ns)
        if silence_ns is not None and now_ns >= silence_ns:
            self._kill(worker, at, f"killed after {self._core.options.heartbeat_timeout:g} s without a sign of life")
            return now_ns
        if at and is_cancelled(worker.tasks_at(at)):
            silence_ns = earliest([silence_ns, self._watch_cancelled(worker, now_ns, at)])
            if not self._probe.is_active(worker):
                return now_ns
        return earliest(
            [silence_ns, *(self._watch_task(worker, now_ns, at) if at else self._watch_unbegun(worker, now_ns))]
        )

    def _watch_start(self, worker: ProcessWorker, now_ns: int) -> int:
        limit_ns = worker.started_ns + POOL_START_MS.default * 1_000_000
        if now_ns < limit_ns:
            return limit_ns
        self._probe.end(worker, "killed because it did not start")
        return now_ns

    # Limits of a task

    def _silence_limit_ns(self, worker: ProcessWorker, now_ns: int) -> int | None:
        """Return the deadline of the next heartbeat of a worker.

        All processes may have been paused together, as by Ctrl-Z or a suspended machine. So a
        silent worker gets a grace period for its next heartbeat.
        """
        if self._heartbeat_ns is None:
            return None
        limit_ns = worker.alive_ns() + self._heartbeat_ns
        if now_ns < limit_ns:
            worker.suspected_ns = 0
            return limit_ns
        worker.suspected_ns = worker.suspected_ns or now_ns
        return worker.suspected_ns + min(self._heartbeat_ns // 2, _SUSPECT_MAX_NS)

    def _kill(self, worker: ProcessWorker, at: int, reason: str, timed_out: bool = False) -> None:
        # Its outcome may have arrived since the last read.
        self._probe.read(worker)
        if self._probe.is_active(worker) and worker.current_position() == at:
            self._probe.end(worker, reason, timed_out)

    def _watch_cancelled(self, worker: ProcessWorker, now_ns: int, at: int) -> int:
        """Cancel the running task of a worker, and kill the worker after the grace period."""
        if worker.cancelled_at != at:
            worker.cancel(now_ns, at)
        modes = [task.on_cancel or self._core.options.on_cancel for task in worker.tasks_at(at)]
        kill_ns = worker.cancelled_ns + (0 if "kill" in modes else _CANCEL_GRACE_NS)
        if now_ns < kill_ns:
            return kill_ns
        if worker.sent > at and not worker.recall_to:
            # Without the recall it could begin its next task, which would then run twice.
            worker.recall(now_ns, at)
            return now_ns + _RECALL_NS
        if worker.reported < at - 1 and now_ns < kill_ns + _REPORT_NS:
            # It still writes earlier outcomes, whose tasks would run again.
            return kill_ns + _REPORT_NS
        self._kill(worker, at, "killed because its task was cancelled")
        return now_ns

    # Queued tasks of a worker

    def _watch_unbegun(self, worker: ProcessWorker, now_ns: int) -> list[int]:
        # It may begin at any moment, and then the limits of the task apply.
        soon = [now_ns + _SLOW_NS] if worker.assigned > 1 else []
        return soon if self._timeout_ns is None else [*soon, now_ns + self._timeout_ns]

    def _watch_task(self, worker: ProcessWorker, now_ns: int, at: int) -> list[int | None]:
        since_ns = worker.current_since_ns()
        late_ns = since_ns + self._timeout_ns if self._timeout_ns is not None else None
        return [late_ns, self._watch_behind(worker, now_ns, at, since_ns)]

    def _watch_behind(self, worker: ProcessWorker, now_ns: int, at: int, since_ns: int) -> int | None:
        """Recall tasks behind a slow task, as another worker may run them sooner."""
        if at >= worker.sent or worker.recall_to:
            return None
        if now_ns < since_ns + _SLOW_NS:
            return since_ns + _SLOW_NS
        worker.recall(now_ns, at)
        return now_ns + _RECALL_NS

    def _watch_recall(self, worker: ProcessWorker, now_ns: int) -> int:
        if now_ns < worker.recall_ns + _RECALL_NS:
            return worker.recall_ns + _RECALL_NS
        worker.recall_ns = 0
        self._core.put_back(worker.take_recalled())
        return now_ns


def earliest(deadlines: Iterable[int | None]) -> int | None:
    """Return the earliest deadline, or None."""
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)
