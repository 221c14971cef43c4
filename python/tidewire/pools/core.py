"""Shared state of a pool, its supervisor and its workers: tasks, counts and state.

One lock protects all of it. No user code runs under the lock: outcomes are delivered, and
``on_dead`` is called, after its release.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from tidewire._binding import ChangeCounter
from tidewire._log import log
from tidewire._node.ledger import Ledger
from tidewire._runtime.waiter import Waiter
from tidewire.errors import ForkedError, LimitExceeded, PoolFailed, PoolStopped, TidewireError
from tidewire.pools.backlog import Backlog
from tidewire.pools.counters import PoolCounters
from tidewire.pools.options import Options
from tidewire.pools.results.answers import Done, InFlightTasks, deliver
from tidewire.pools.task import ASSIGNED, ENDED, Task, Unit, is_cancelled, is_wanted, singles

if TYPE_CHECKING:
    from tidewire._binding import Pending

State = Literal["starting", "running", "failed", "stopping", "stopped"]


class DeadTask(NamedTuple):
    """Tasks without a result, with reason and error."""

    task: Unit
    reason: str
    error: BaseException | None


class PoolListener(Protocol):
    """Callbacks of the core to the workers and the supervisor."""

    def on_added(self, count: int) -> bool:
        """Handle new tasks, under the lock. Return True if the supervisor must be woken."""

    def ring(self) -> None:
        """Wake the supervisor. Called under the lock, under which the supervisor closes its wakeup
        pipe.
        """

    def interrupt(self) -> None:
        """Cancel running coroutines."""

    def on_cancelled(self) -> None:
        """Handle the cancellation of assigned tasks, under the lock."""


class Stop:
    """Mode and deadline of a requested stop."""

    def __init__(self, drain: bool, deadline_ns: int) -> None:
        self.drain = drain
        self.deadline_ns = deadline_ns


class Core:
    """Tasks, counts and state of one pool."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.backlog = Backlog(options.capacity)
        self.counters = PoolCounters()
        self.state: State = "starting"
        self.stop: Stop | None = None
        self.ledger: Ledger | None = None
        self.listener: PoolListener | None = None
        # The number set by ``scale``, or None if it follows the queueing time.
        self.workers_set: int | None = None
        self.on_close: list[Callable[[], Pending]] = []
        # Pendings and watchers, which end with the pool.
        self.closing: list[Pending] = []
        self.watchers: list[Callable[[], object]] = []
        self.rests = ChangeCounter()
        self._numbers = 0
        self._refusal: tuple[type[TidewireError], str, BaseException | None] | None = None
        self._stop_waiters: list[Waiter] = []
        self._fails_when_full = options.overflow == "fail"

    # Submission

    def submit(self, unit: Unit) -> None:
        """Accept a task or a range, or park it until there is capacity. Ranges of a map always
        wait, as a map limits its tasks itself.

        Raises:
            LimitExceeded: if the backlog is full, and the overflow is "fail".
            PoolStopped: if the pool accepts no more tasks.
            PoolFailed: if the pool has failed.
        """
        unit.queued_ns = time.monotonic_ns()
        with self.lock:
            if self._refusal is not None:
                raise self.refusal()
            if self._fails_when_full and self.backlog.full and not isinstance(unit.answer, InFlightTasks):
                text = f"capacity: {self.options.capacity:,} tasks wait in pool {self.options.name!r} already"
                raise LimitExceeded(f"{text}: submit later, raise capacity, or use overflow='wait'")
            unit.number = self._numbers + 1
            self._numbers += unit.count
            self.backlog.add(unit)
            if self.listener is not None and self.listener.on_added(unit.count):
                self.listener.ring()

    def refusal(self) -> TidewireError:
        """Return a new error with the reason why no task is accepted."""
        assert self._refusal is not None
        kind, message, cause = self._refusal
        error = kind(message)
        error.__cause__ = cause
        return error

    # Outcomes

    def end(self, done: Sequence[Done], dead_tasks: Sequence[DeadTask] = ()) -> None:
        """Count outcomes, and deliver them to their receivers."""
        if dead_tasks:
            dead_tasks = [end._replace(reason="cancelled") if is_cancelled([end.task]) else end for end in dead_tasks]
        with self.lock:
            for unit, _, _ in done:
                unit.state = ENDED
                self.counters.handled += unit.count
            for dead in dead_tasks:
                dead.task.state = ENDED
                self.counters.dead[dead.reason] += dead.task.count
            is_idle = self._is_idle()
        deliver(done)
        if dead_tasks:
            self._report(dead_tasks)
        if is_idle:
            self.rests.ring()

    def cancel(self, task: Task) -> None:
        """Drop a task that was not begun, or let its worker cancel it. Its outcome is discarded."""
        dropped: list[Unit] = []
        with self.lock:
            task.answer = None
            if task.state < ASSIGNED and self.backlog.drop(task):
                dropped.append(task)
            elif task.state == ASSIGNED:
                task.cancelled = (task.on_cancel or self.options.on_cancel) != "leave"
                if self.listener is not None:
                    self.listener.on_cancelled()
            is_idle = self._count_cancelled(dropped)
        self._report_cancelled(dropped, is_idle)

    def cancel_all(self, answer: InFlightTasks) -> None:
        """Cancel all tasks of a map, as ``cancel`` does."""
        with self.lock:
            answer.is_abandoned = True
            answer.is_cancelled = self.options.on_cancel != "leave"
            dropped, _parked = self.backlog.drop_all(answer)
            if self.listener is not None:
                self.listener.on_cancelled()
            is_idle = self._count_cancelled(dropped)
        self._report_cancelled(dropped, is_idle)

    def put_back(self, units: Sequence[Unit]) -> None:
        """Put tasks that no worker has begun at the front of the backlog. Tasks without a receiver
        are dropped.
        """
        if not units:
            return
        with self.lock:
            dropped = [unit for unit in units if not is_wanted(unit)]
            self.backlog.put_back(unit for unit in units if is_wanted(unit))
            is_idle = self._count_cancelled(dropped)
        self._report_cancelled(dropped, is_idle)

    def _count_cancelled(self, dropped: list[Unit]) -> bool:
        for unit in dropped:
            unit.state = ENDED
            self.counters.dead["cancelled"] += unit.count
        return self._is_idle()

    def _report_cancelled(self, dropped: list[Unit], is_idle: bool) -> None:
        self._report([DeadTask(unit, "cancelled", None) for unit in dropped])
        if is_idle:
            self.rests.ring()

    def in_workers(self) -> int:
        """Return the number of tasks in workers. The lock must be held."""
        ended = self.counters.handled + sum(self.counters.dead.values()) + len(self.counters.returned)
        return self.backlog.accepted - self.backlog.waiting - ended

    def accepted_if_idle(self) -> int | None:
        """Return the number of accepted tasks if all of them have ended, else None."""
        with self.lock:
            return self.backlog.accepted if self._is_idle() else None

    def _is_idle(self) -> bool:
        return not (self.backlog.waiting or self.backlog.parked or self.in_workers())

    def statistics(self, now_ns: int) -> dict[str, Any]:
        """Return the counts and the times of the tasks."""
        with self.lock:
            first = self.backlog.first()
            return {
                "kind": self.options.kind,
                "state": self.state,
                "accepted": self.backlog.accepted,
                "waiting": self.backlog.waiting,
                "waiting_for_room": self.backlog.parked,
                "in_workers": self.in_workers(),
                "oldest_wait_ms": (now_ns - first.queued_ns) / 1e6 if first is not None else 0.0,
                **self.counters.summary(),
            }

    def _report(self, dead_tasks: Sequence[DeadTask]) -> None:
        if self.options.on_dead is None:
            deliver((dead.task, dead.error, None) for dead in dead_tasks if dead.error is not None)
            return
        for unit, reason, failure in dead_tasks:
            for task in singles([unit]):
                if failure is not None:
                    deliver([(task, failure, None)])
                self._call_on_dead(task, reason, failure)

    def _call_on_dead(self, task: Task, reason: str, failure: BaseException | None) -> None:
        task.answer = None
        try:
            self.options.on_dead(task, reason, failure)  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001
            text = "pool %(pool)r: on_dead failed on %(task)r: %(error)s"
            log.error("pool.on_dead_failed", text, exc_info=error, pool=self.options.name, task=task, error=error)

    # State and stop

    def mark_running(self) -> None:
        """Set the state to "running" when the first worker is ready."""
        with self.lock:
            if self.state == "starting":
                self.state = "running"
                if self.listener is not None:
                    self.listener.ring()

    def ask_to_stop(self, drain: bool, timeout: float | None, waiter: Waiter | None = None) -> None:
        """Request a stop, and wake a waiter once the pool has stopped."""
        limit_ns = 2**63 if timeout is None else time.monotonic_ns() + int(timeout * 1e9)
        with self.lock:
            is_stopped = self.ledger is not None
            if not is_stopped:
                self._begin_stop(drain, limit_ns)
                if waiter is not None:
                    self._stop_waiters.append(waiter)
        if is_stopped and waiter is not None:
            waiter.wake()
        self.wake_supervisor()

    def interrupt(self, timeout: float) -> None:
        """Request a stop without draining, and cancel the coroutines of its threads."""
        with self.lock:
            listener = self.listener
            if self.ledger is None:
                self._begin_stop(False, time.monotonic_ns() + int(timeout * 1e9))
        self.return_waiting()
        if listener is not None:
            listener.interrupt()
        self.wake_supervisor()

    def set_workers(self, workers: int | None) -> None:
        """Set the number of workers; None lets it follow the queueing time.

        Raises:
            PoolStopped: if the pool accepts no more tasks.
            PoolFailed: if the pool has failed.
        """
        with self.lock:
            if self._refusal is not None:
                raise self.refusal()
            self.workers_set = workers
        self.wake_supervisor()

    def wake_supervisor(self) -> None:
        """Wake the supervisor."""
        with self.lock:
            if self.listener is not None:
                self.listener.ring()

    def watch(self, notify: Callable[[], object]) -> None:
        """Register a watcher, which is called after each round of the supervisor. It must not take
        the lock of the pool.
        """
        with self.lock:
            self.watchers = [*self.watchers, notify]

    def unwatch(self, notify: Callable[[], object]) -> None:
        """Unregister a watcher."""
        with self.lock:
            self.watchers = [one for one in self.watchers if one != notify]

    def notify_watchers(self) -> None:
        """Call all watchers. Errors of closed loops are ignored."""
        for notify in self.watchers:
            with contextlib.suppress(RuntimeError):
                notify()

    def _begin_stop(self, drain: bool, limit_ns: int) -> None:
        if self.stop is None:
            self.stop = Stop(drain, limit_ns)
        self.stop.drain = self.stop.drain and drain
        self.stop.deadline_ns = min(self.stop.deadline_ns, limit_ns)
        if self.state != "failed":
            self.state = "stopping"
            message = f"pool {self.options.name!r} is stopping or has stopped, and takes no more tasks: make a new pool"
            self._refusal = (PoolStopped, message, None)

    def return_waiting(self) -> None:
        """Move the waiting tasks to the stop report of ``stop(drain=False)``."""
        with self.lock:
            waiting, parked = self.backlog.clear()
            self._end_all([*waiting, *parked])
            self.counters.returned += waiting
        self._refuse([*waiting, *parked])

    def refuse_parked(self) -> None:
        """Refuse submits that wait for capacity."""
        with self.lock:
            parked = self.backlog.clear_parked()
            self._end_all(parked)
        self._refuse(parked)

    def abandon(self, tasks: Sequence[Unit], reason: str) -> None:
        """End all waiting tasks, and these tasks of workers, with an error."""
        with self.lock:
            waiting, parked = self.backlog.clear()
            self._end_all(parked)
        self._refuse(parked)
        self.end((), [DeadTask(task, reason, self.refusal()) for task in [*tasks, *waiting]])

    def fail(self, reason: str, cause: BaseException | None) -> None:
        """Set the state to "failed", and refuse later submits."""
        with self.lock:
            self.state = "failed"
            self._refusal = (PoolFailed, f"pool {self.options.name!r} has failed: {reason}", cause)
        log.error("pool.failed", "pool %(pool)r has failed: %(reason)s", pool=self.options.name, reason=reason)

    def disown(self) -> None:
        """Refuse later submits, and make a stop do nothing: the workers belong to the parent
        process.
        """
        self.lock = threading.Lock()
        text = "was made before a fork: make a new pool in the child, or start processes with spawn or forkserver"
        self._refusal = (ForkedError, f"pool {self.options.name!r} {text}", None)
        self.state, self.ledger, self.listener = "stopped", Ledger(0, 0, 0, 0), None

    def close(self, ledger: Ledger) -> None:
        """Set the stop report, and wake its waiters."""
        with self.lock:
            self.ledger = ledger
            if self.state == "stopping":
                self.state = "stopped"
            waiters, self._stop_waiters = self._stop_waiters, []
        on_close, self.on_close = self.on_close, []
        # Set before the waiters wake, as these await them.
        self.closing += [call() for call in on_close]
        for waiter in waiters:
            waiter.wake()
        self.rests.ring()
        self.notify_watchers()

    def _end_all(self, tasks: list[Task]) -> None:
        for task in tasks:
            task.state = ENDED

    def _refuse(self, tasks: list[Task]) -> None:
        deliver((task, self.refusal(), None) for task in tasks)
