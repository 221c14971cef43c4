"""Shared state of a pool, its supervisor and its workers: the tasks, the counts and the state.

One lock protects all of it. No code of the user runs under it: outcomes are delivered, and
``on_dead`` called, after it.
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
from tidewire.pools.task import ENDED, HANDED, Task, Unit, is_cancelled, is_wanted, singles

if TYPE_CHECKING:
    from tidewire._binding import Pending

State = Literal["starting", "running", "failed", "stopping", "stopped"]


class Ended(NamedTuple):
    """Tasks that were given up."""

    task: Unit
    reason: str
    error: BaseException | None


class PoolListener(Protocol):
    """Callbacks of the core to workers and supervisor."""

    def added(self, count: int) -> bool:
        """Note under the lock that tasks were added. True if the supervisor must be woken."""

    def ring(self) -> None:
        """Wake the supervisor. Called under the lock, under which the supervisor removes its bell
        at its end.
        """

    def interrupt(self) -> None:
        """Cancel coroutines that can be."""

    def cancelled(self) -> None:
        """Note under the lock that tasks which workers have were cancelled."""


class Stop:
    """A requested stop."""

    def __init__(self, drain: bool, deadline_ns: int) -> None:
        self.drain = drain
        self.deadline_ns = deadline_ns


class Core:
    """The tasks of one pool."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.backlog = Backlog(options.capacity)
        self.counters = PoolCounters()
        self.state: State = "starting"
        self.stop: Stop | None = None
        self.ledger: Ledger | None = None
        self.listener: PoolListener | None = None
        # The number of workers that was set; None: it follows the queueing time.
        self.workers_set: int | None = None
        self.on_close: list[Callable[[], Pending]] = []
        # Pendings and watchers that end with the pool.
        self.closing: list[Pending] = []
        self.watchers: list[Callable[[], object]] = []
        self.rests = ChangeCounter()
        self._numbers = 0
        self._refusal: tuple[type[TidewireError], str, BaseException | None] | None = None
        self._stop_waiters: list[Waiter] = []
        self._fails_when_full = options.overflow == "fail"

    # Tasks come

    def submit(self, unit: Unit) -> None:
        """Accept a task or a range of them, or let it wait for room. A map limits its tasks by
        itself, so that its ranges wait in any case.

        Raises:
            LimitExceeded: if there is no room, and the pool is to fail then.
            PoolStopped: if the pool takes no more tasks.
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
            if self.listener is not None and self.listener.added(unit.count):
                self.listener.ring()

    def refusal(self) -> TidewireError:
        """Return a new error that says why no task is taken."""
        assert self._refusal is not None
        kind, message, cause = self._refusal
        error = kind(message)
        error.__cause__ = cause
        return error

    # Tasks end

    def end(self, done: Sequence[Done], given_up: Sequence[Ended] = ()) -> None:
        """Count outcomes, and hand them to those who wait."""
        if given_up:
            given_up = [end._replace(reason="cancelled") if is_cancelled([end.task]) else end for end in given_up]
        with self.lock:
            for unit, _, _ in done:
                unit.state = ENDED
                self.counters.handled += unit.count
            for ended in given_up:
                ended.task.state = ENDED
                self.counters.dead[ended.reason] += ended.task.count
            rests = self._rests()
        deliver(done)
        if given_up:
            self._report(given_up)
        if rests:
            self.rests.ring()

    def cancel(self, task: Task) -> None:
        """Drop a task that was not begun, or let its worker end it. Nobody gets a result."""
        dropped: list[Unit] = []
        with self.lock:
            task.answer = None
            if task.state < HANDED and self.backlog.drop(task):
                dropped.append(task)
            elif task.state == HANDED:
                task.cancelled = (task.on_cancel or self.options.on_cancel) != "leave"
                if self.listener is not None:
                    self.listener.cancelled()
            rests = self._count_cancelled(dropped)
        self._report_cancelled(dropped, rests)

    def cancel_all(self, answer: InFlightTasks) -> None:
        """As ``cancel``, for all tasks of a map."""
        with self.lock:
            answer.is_abandoned = True
            answer.is_cancelled = self.options.on_cancel != "leave"
            dropped, _parked = self.backlog.drop_all(answer)
            if self.listener is not None:
                self.listener.cancelled()
            rests = self._count_cancelled(dropped)
        self._report_cancelled(dropped, rests)

    def put_back(self, units: Sequence[Unit]) -> None:
        """Put tasks that no worker has begun in front of all others. Tasks without a waiter are
        dropped.
        """
        if not units:
            return
        with self.lock:
            dropped = [unit for unit in units if not is_wanted(unit)]
            self.backlog.put_back(unit for unit in units if is_wanted(unit))
            rests = self._count_cancelled(dropped)
        self._report_cancelled(dropped, rests)

    def _count_cancelled(self, dropped: list[Unit]) -> bool:
        for unit in dropped:
            unit.state = ENDED
            self.counters.dead["cancelled"] += unit.count
        return self._rests()

    def _report_cancelled(self, dropped: list[Unit], rests: bool) -> None:
        self._report([Ended(unit, "cancelled", None) for unit in dropped])
        if rests:
            self.rests.ring()

    def handed(self) -> int:
        """Return how many tasks workers have. The lock must be held."""
        ended = self.counters.handled + sum(self.counters.dead.values()) + len(self.counters.returned)
        return self.backlog.accepted - self.backlog.waiting - ended

    def accepted_if_idle(self) -> int | None:
        """Return how many tasks were accepted so far, if all of them have ended."""
        with self.lock:
            return self.backlog.accepted if self._rests() else None

    def _rests(self) -> bool:
        return not (self.backlog.waiting or self.backlog.parked or self.handed())

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
                "in_workers": self.handed(),
                "oldest_wait_ms": (now_ns - first.queued_ns) / 1e6 if first is not None else 0.0,
                **self.counters.summary(),
            }

    def _report(self, given_up: Sequence[Ended]) -> None:
        if self.options.on_dead is None:
            deliver((ended.task, ended.error, None) for ended in given_up if ended.error is not None)
            return
        for unit, reason, failure in given_up:
            for task in singles([unit]):
                if failure is not None:
                    deliver([(task, failure, None)])
                self._tell_dead(task, reason, failure)

    def _tell_dead(self, task: Task, reason: str, failure: BaseException | None) -> None:
        task.answer = None
        try:
            self.options.on_dead(task, reason, failure)  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001
            text = "pool %(pool)r: on_dead failed on %(task)r: %(error)s"
            log.error("pool.on_dead_failed", text, exc_info=error, pool=self.options.name, task=task, error=error)

    # The end of the pool

    def running(self) -> None:
        """Note that a worker is ready."""
        with self.lock:
            if self.state == "starting":
                self.state = "running"
                if self.listener is not None:
                    self.listener.ring()

    def ask_to_stop(self, drain: bool, timeout: float | None, waiter: Waiter | None = None) -> None:
        """Close the pool, and wake a waiter once it has stopped."""
        limit_ns = 2**63 if timeout is None else time.monotonic_ns() + int(timeout * 1e9)
        with self.lock:
            over = self.ledger is not None
            if not over:
                self._begin_stop(drain, limit_ns)
                if waiter is not None:
                    self._stop_waiters.append(waiter)
        if over and waiter is not None:
            waiter.wake()
        self.wake_supervisor()

    def interrupt(self, timeout: float) -> None:
        """Close the pool as a stop without draining does, and cancel the coroutines of its
        threads.
        """
        with self.lock:
            listener = self.listener
            if self.ledger is None:
                self._begin_stop(False, time.monotonic_ns() + int(timeout * 1e9))
        self.give_back()
        if listener is not None:
            listener.interrupt()
        self.wake_supervisor()

    def set_workers(self, workers: int | None) -> None:
        """Set the number of workers; None lets it follow the queueing time.

        Raises:
            PoolStopped: if the pool takes no more tasks.
            PoolFailed: if the pool has failed.
        """
        with self.lock:
            if self._refusal is not None:
                raise self.refusal()
            self.workers_set = workers
        self.wake_supervisor()

    def wake_supervisor(self) -> None:
        """Make the supervisor look again."""
        with self.lock:
            if self.listener is not None:
                self.listener.ring()

    def watch(self, tell: Callable[[], object]) -> None:
        """Call a function, which takes no lock of the pool, after each turn of the supervisor that
        did something.
        """
        with self.lock:
            self.watchers = [*self.watchers, tell]

    def unwatch(self, tell: Callable[[], object]) -> None:
        """Call it no more."""
        with self.lock:
            self.watchers = [one for one in self.watchers if one != tell]

    def tell_watchers(self) -> None:
        """Signal a possible change. A closed loop gets no signal."""
        for tell in self.watchers:
            with contextlib.suppress(RuntimeError):
                tell()

    def _begin_stop(self, drain: bool, limit_ns: int) -> None:
        if self.stop is None:
            self.stop = Stop(drain, limit_ns)
        self.stop.drain = self.stop.drain and drain
        self.stop.deadline_ns = min(self.stop.deadline_ns, limit_ns)
        if self.state != "failed":
            self.state = "stopping"
            message = f"pool {self.options.name!r} is stopping or has stopped, and takes no more tasks: make a new pool"
            self._refusal = (PoolStopped, message, None)

    def give_back(self) -> None:
        """Take what waits out of the line: it goes to the caller of ``stop(drain=False)``."""
        with self.lock:
            waiting, parked = self.backlog.clear()
            self._end_all([*waiting, *parked])
            self.counters.returned += waiting
        self._refuse([*waiting, *parked])

    def refuse_parked(self) -> None:
        """Tell submits that wait for room that there will be none."""
        with self.lock:
            parked = self.backlog.clear_parked()
            self._end_all(parked)
        self._refuse(parked)

    def abandon(self, tasks: Sequence[Unit], reason: str) -> None:
        """Give up all that waits, and these tasks of workers."""
        with self.lock:
            waiting, parked = self.backlog.clear()
            self._end_all(parked)
        self._refuse(parked)
        self.end((), [Ended(task, reason, self.refusal()) for task in [*tasks, *waiting]])

    def fail(self, reason: str, cause: BaseException | None) -> None:
        """Turn every later submit away."""
        with self.lock:
            self.state = "failed"
            self._refusal = (PoolFailed, f"pool {self.options.name!r} has failed: {reason}", cause)
        log.error("pool.failed", "pool %(pool)r has failed: %(reason)s", pool=self.options.name, reason=reason)

    def disown(self) -> None:
        """Refuse every later submit, and let a stop do nothing: the workers belong to the parent of
        this process.
        """
        self.lock = threading.Lock()
        text = "was made before a fork: make a new pool in the child, or start processes with spawn or forkserver"
        self._refusal = (ForkedError, f"pool {self.options.name!r} {text}", None)
        self.state, self.ledger, self.listener = "stopped", Ledger(0, 0, 0, 0), None

    def close(self, ledger: Ledger) -> None:
        """Note the ledger, and wake those who wait for it."""
        with self.lock:
            self.ledger = ledger
            if self.state == "stopping":
                self.state = "stopped"
            waiters, self._stop_waiters = self._stop_waiters, []
        on_close, self.on_close = self.on_close, []
        # Before anybody is notified of the end, and waits for these.
        self.closing += [call() for call in on_close]
        for waiter in waiters:
            waiter.wake()
        self.rests.ring()
        self.tell_watchers()

    def _end_all(self, tasks: list[Task]) -> None:
        for task in tasks:
            task.state = ENDED

    def _refuse(self, tasks: list[Task]) -> None:
        deliver((task, self.refusal(), None) for task in tasks)
