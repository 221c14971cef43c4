"""Health check of worker processes: stalled workers, late tasks, and tasks that another worker may
do sooner.

A worker is killed when it does not start, when a task takes longer than ``task_timeout``, when a
cancelled task goes on for 5 seconds or is to be killed, and when it has tasks and has given no sign
of life for ``heartbeat_timeout``.
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
_DOUBT_MAX_NS = 1_000_000_000
_REPORT_NS = 1_000_000_000
_CANCEL_GRACE_NS = 5_000_000_000


class WorkerProbe(Protocol):
    """Actions of the health check on a worker."""

    def read(self, worker: ProcessWorker) -> None: ...
    def end(self, worker: ProcessWorker, why: str = "", timed_out: bool = False) -> None: ...
    def is_here(self, worker: ProcessWorker) -> bool: ...


class Health:
    """Looks at one worker at a time, does what is due, and says when to look again."""

    def __init__(self, core: Core, ward: WorkerProbe) -> None:
        self._core = core
        self._ward = ward
        self._timeout_ns = _ns(core.options.task_timeout)
        self._heartbeat_ns = _ns(core.options.heartbeat_timeout)

    def watch(self, worker: ProcessWorker, now_ns: int) -> int | None:
        """Look at a worker, and return when the next thing is due."""
        if worker.state == "starting":
            return self._watch_start(worker, now_ns)
        if worker.recall_ns:
            return self._watch_recall(worker, now_ns)
        if not worker.given:
            return None
        at = worker.at()
        if at and self._timeout_ns is not None and now_ns >= worker.at_since_ns() + self._timeout_ns:
            self._kill(worker, at, "killed after task_timeout", timed_out=True)
            return now_ns
        silent_ns = self._silent_ns(worker, now_ns)
        if silent_ns is not None and now_ns >= silent_ns:
            self._kill(worker, at, f"killed after {self._core.options.heartbeat_timeout:g} s without a sign of life")
            return now_ns
        if at and is_cancelled(worker.tasks_at(at)):
            silent_ns = earliest([silent_ns, self._watch_cancelled(worker, now_ns, at)])
            if not self._ward.is_here(worker):
                return now_ns
        return earliest(
            [silent_ns, *(self._watch_task(worker, now_ns, at) if at else self._watch_unbegun(worker, now_ns))]
        )

    def _watch_start(self, worker: ProcessWorker, now_ns: int) -> int:
        limit_ns = worker.started_ns + POOL_START_MS.default * 1_000_000
        if now_ns < limit_ns:
            return limit_ns
        self._ward.end(worker, "killed because it did not start")
        return now_ns

    # Limits of a task

    def _silent_ns(self, worker: ProcessWorker, now_ns: int) -> int | None:
        """Return until when a worker may go on without a sign of life.

        All processes may have stood still together, as after Ctrl-Z or on a paused machine. So a
        silent worker gets a moment in which its heart would beat again.
        """
        if self._heartbeat_ns is None:
            return None
        limit_ns = worker.alive_ns() + self._heartbeat_ns
        if now_ns < limit_ns:
            worker.doubted_ns = 0
            return limit_ns
        worker.doubted_ns = worker.doubted_ns or now_ns
        return worker.doubted_ns + min(self._heartbeat_ns // 2, _DOUBT_MAX_NS)

    def _kill(self, worker: ProcessWorker, at: int, why: str, timed_out: bool = False) -> None:
        # Its outcome may have arrived since the last look.
        self._ward.read(worker)
        if self._ward.is_here(worker) and worker.at() == at:
            self._ward.end(worker, why, timed_out)

    def _watch_cancelled(self, worker: ProcessWorker, now_ns: int, at: int) -> int:
        """Let a worker end its present task if that was cancelled, and kill it after the grace."""
        if worker.cancelled_at != at:
            worker.cancel(now_ns, at)
        modes = [task.on_cancel or self._core.options.on_cancel for task in worker.tasks_at(at)]
        kill_ns = worker.cancelled_ns + (0 if "kill" in modes else _CANCEL_GRACE_NS)
        if now_ns < kill_ns:
            return kill_ns
        if worker.sent > at and not worker.recall_to:
            # It might end this task now, and begin the next one, which would run twice.
            worker.recall(now_ns, at)
            return now_ns + _RECALL_NS
        if worker.reported < at - 1 and now_ns < kill_ns + _REPORT_NS:
            # It is writing what it did before, which would be done again.
            return kill_ns + _REPORT_NS
        self._kill(worker, at, "killed because its task was cancelled")
        return now_ns

    # Tasks that wait in a worker

    def _watch_unbegun(self, worker: ProcessWorker, now_ns: int) -> list[int]:
        # It may begin at any moment, and from then on the limits of its task hold.
        soon = [now_ns + _SLOW_NS] if worker.given > 1 else []
        return soon if self._timeout_ns is None else [*soon, now_ns + self._timeout_ns]

    def _watch_task(self, worker: ProcessWorker, now_ns: int, at: int) -> list[int | None]:
        since_ns = worker.at_since_ns()
        late_ns = since_ns + self._timeout_ns if self._timeout_ns is not None else None
        return [late_ns, self._watch_behind(worker, now_ns, at, since_ns)]

    def _watch_behind(self, worker: ProcessWorker, now_ns: int, at: int, since_ns: int) -> int | None:
        """Take back what waits behind a task that takes long, as another worker may do it
        sooner.
        """
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
        self._core.put_back(worker.take_back())
        return now_ns


def earliest(deadlines: Iterable[int | None]) -> int | None:
    """Return the first of these moments, if there is any."""
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)
