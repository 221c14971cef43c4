"""Worker threads of a pool. They take tasks from the backlog themselves, under supervision.

A thread takes several short tasks at once. Tasks behind a slow task are recalled for other threads.
A thread can't be killed: after ``task_timeout`` it is abandoned, and ends with its task.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from selectors import BaseSelector
from typing import Any

from tidewire._limits import POOL_STUCK_THREADS
from tidewire._log import log
from tidewire._node.ledger import Stuck
from tidewire._runtime.stacks import stacks
from tidewire._runtime.task import running_task
from tidewire.pools import failure
from tidewire.pools.assignment import Assignment
from tidewire.pools.core import Core, DeadTask
from tidewire.pools.function import Caller, name_of
from tidewire.pools.policies.batch_policy import plan
from tidewire.pools.policies.batch_sizer import BatchSizer
from tidewire.pools.policies.restarts import WorkerReplacement
from tidewire.pools.processes.health import earliest
from tidewire.pools.results.answers import Done
from tidewire.pools.task import Task, Unit, is_cancelled, singles
from tidewire.pools.thread import ThreadTurn, ThreadWorker, worker_statistics

_JOIN_S = 1.0
_SLOW_NS = 10_000_000

current = threading.local()
"""``current.core`` is the core of the pool of this worker thread."""


class ThreadWorkers:
    """Worker threads of one pool."""

    def __init__(self, core: Core, function: Callable[..., Any], replacement: WorkerReplacement) -> None:
        self._core = core
        self._function = function
        self._replacement = replacement
        self._workers: dict[int, ThreadWorker] = {}
        self._idle: list[ThreadWorker] = []
        self._abandoned: list[ThreadWorker] = []
        self._ending_threads: list[threading.Thread] = []
        self._restarts: Counter[int] = Counter()
        self._alert = self._has_cancelled = False
        self._sizer = BatchSizer()
        self._failed_starts: deque[tuple[ThreadWorker, BaseException]] = deque()
        self._has_been_ready = False
        options = core.options
        self._timeout_ns = int(options.task_timeout * 1e9) if options.task_timeout else None
        self._needs_supervision = self._timeout_ns is not None or options.scale.min < options.scale.max

    def open(self, selector: BaseSelector) -> None:
        """Do nothing: threads have no events to select."""

    def on_added(self, count: int) -> bool:
        """Wake idle threads for new tasks. Return True if the supervisor sleeps and must watch
        them.
        """
        self._wake()
        if not self._needs_supervision:
            return False
        alert, self._alert = self._alert, False
        return alert

    def _wake(self) -> None:
        if not self._idle:
            return
        wakeups = -(-self._core.backlog.waiting // self._size())
        for _ in range(min(wakeups, len(self._idle))):
            self._idle.pop().wakeup.release()

    def _size(self) -> int:
        """Return the number of tasks that a thread takes at once."""
        waiting = self._core.backlog.waiting
        if waiting <= 1 or self._core.options.batch is not None:
            return 1
        return max(self._sizer.size(waiting, len(self._workers), 0, 0), 1)

    def on_cancelled(self) -> None:
        """Cancel the coroutines of cancelled tasks. Plain functions see it at their next check."""
        self._has_cancelled = True
        for worker in [*self._workers.values(), *self._abandoned]:
            if worker.caller is not None and is_cancelled(worker.current()):
                worker.caller.cancel_current()

    # A worker thread

    def _run(self, worker: ThreadWorker) -> None:
        current.core = self._core
        running_task.set(worker.running_task)
        try:
            caller = Caller(self._function, lambda: is_cancelled(worker.current()), self._core.options.traced)
        except BaseException as error:  # noqa: BLE001
            # The supervisor removes it, so that it counts the failure before it starts another one.
            self._failed_starts.append((worker, failure.for_caller(error)))
            self._core.wake_supervisor()
            return
        self._has_been_ready = True
        worker.caller = caller
        self._core.mark_running()
        try:
            while (turn := self._next(worker)) is not None:
                turn.run(caller, partial(self._flush, worker, turn))
                self._flush(worker, turn, is_end=True)
        finally:
            caller.close()
            self._remove(worker)

    def _next(self, worker: ThreadWorker) -> ThreadTurn | None:
        """Wait for tasks. Return None if the thread must end."""
        while True:
            with self._core.lock:
                if worker.is_leaving:
                    return None
                again_ns = self._take(worker)
                if worker.turn is not None:
                    return worker.turn
                self._idle.append(worker)
            self._sleep(worker, again_ns)

    def _take(self, worker: ThreadWorker) -> int | None:
        backlog, batch = self._core.backlog, self._core.options.batch
        if not backlog.waiting:
            return None
        now_ns = time.monotonic_ns()
        again_ns = None
        if batch is None:
            units = backlog.take(self._size())
        else:
            first = backlog.first()
            busy = sum(1 for other in self._workers.values() if other.turn is not None)
            call = plan(batch, now_ns, backlog.waiting, first.queued_ns if first else 0, busy)
            units, again_ns = [*singles(backlog.take(call.size))], call.again_ns
        if units:
            assignment = Assignment(units, is_call=batch is not None)
            worker.turn = ThreadTurn(assignment, now_ns)
            count = len(units) if assignment.is_call else assignment.count
            self._core.counters.count_assignment(count, units[0].queued_ns, now_ns)
            self._wake_sleeping_supervisor(self._needs_supervision or assignment.count > 1)
        return again_ns

    def _wake_sleeping_supervisor(self, is_supervised: bool) -> None:
        if ((self._alert and is_supervised) or self._core.watchers) and self._core.listener is not None:
            self._alert = False
            self._core.listener.ring()

    def _sleep(self, worker: ThreadWorker, again_ns: int | None) -> None:
        wait_s = -1.0 if again_ns is None else max(again_ns - time.monotonic_ns(), 0) / 1e9
        if worker.wakeup.acquire(timeout=wait_s):
            return
        with self._core.lock:
            if worker in self._idle:
                self._idle.remove(worker)
                return
        # Another thread has released it between the timeout and the lock.
        worker.wakeup.acquire()

    def _flush(self, worker: ThreadWorker, turn: ThreadTurn, is_end: bool = False) -> None:
        """Deliver the outcomes so far. Any thread may call."""
        now_ns = time.monotonic_ns()
        with self._core.lock:
            if is_end:
                worker.turn = None
            done, dead_tasks = self._settle(worker, turn, now_ns)
        if done or dead_tasks:
            self._core.end(done, dead_tasks)
        if self._core.stop is not None or self._core.watchers:
            self._core.wake_supervisor()

    def _settle(self, worker: ThreadWorker, turn: ThreadTurn, now_ns: int) -> tuple[list[Done], list[DeadTask]]:
        # The tasks of an abandoned worker have already ended.
        if turn.is_over:
            return [], []
        done, dead_tasks = turn.settle(self._core)
        count = sum([unit.count for unit, _, _ in done]) + len(dead_tasks)
        worker.busy_ns += now_ns - turn.flushed_ns
        worker.heard_ns = turn.flushed_ns = now_ns
        worker.handled += count
        worker.errors += len(dead_tasks)
        if count and turn.worked_ns:
            self._sizer.learn(count, turn.worked_ns / 1_000)
            self._core.counters.handling.add(turn.worked_ns // 1_000 // count, count)
            turn.worked_ns = 0
        return done, dead_tasks

    def _remove(self, worker: ThreadWorker) -> None:
        with self._core.lock:
            if self._workers.get(worker.number) is worker:
                del self._workers[worker.number]
            if worker in self._abandoned:
                self._abandoned.remove(worker)
        self._core.wake_supervisor()

    # Round of the supervisor

    def work(self, now_ns: int) -> int | None:
        """Run due actions, and return the time of the next one."""
        self._handle_failed_starts(now_ns)
        self._spawn(now_ns)
        spawning = self._replacement.next_ns(now_ns, len(self._workers))
        self._recall_slow(now_ns)
        with self._core.lock:
            self._retire()
            overdue = self._overdue(now_ns)
        for worker, tasks in overdue:
            self._replace(worker, tasks, now_ns)
        with self._core.lock:
            turns = [worker.turn for worker in self._workers.values() if worker.turn is not None]
            deadline = earliest(map(self._watch_ns, turns))
            self._alert = deadline is None
        return now_ns if overdue else earliest([deadline, spawning])

    def _watch_ns(self, turn: ThreadTurn) -> int | None:
        """Return the time of the next check of a turn."""
        slow_ns = turn.since_ns + _SLOW_NS if turn.pending or turn.outcomes else None
        return earliest([slow_ns, None if self._timeout_ns is None else turn.since_ns + self._timeout_ns])

    def _recall_slow(self, now_ns: int, recall_all: bool = False) -> None:
        """Recall tasks behind a slow task for other threads, and deliver the results before it.
        Cancelled tasks are dropped.
        """
        recalled: list[Unit] = []
        slow: list[tuple[ThreadWorker, ThreadTurn]] = []
        with self._core.lock:
            forced = recall_all or self._has_cancelled
            self._has_cancelled = False
            for worker in self._workers.values():
                turn = worker.turn
                if turn is None or not (forced or now_ns - turn.since_ns >= _SLOW_NS):
                    continue
                if not forced and turn.pending:
                    # A sample of the slow task makes the next assignments smaller.
                    self._sizer.learn(1, (now_ns - turn.since_ns) / 1_000)
                recalled += turn.recall()
                slow.append((worker, turn))
        self._core.put_back(recalled)
        with self._core.lock:
            self._wake()
        for worker, turn in slow:
            self._flush(worker, turn)

    def _handle_failed_starts(self, now_ns: int) -> None:
        """Count threads that failed to start. If none has ever started, give up."""
        while self._failed_starts:
            worker, error = self._failed_starts.popleft()
            with self._core.lock:
                if self._workers.get(worker.number) is worker:
                    del self._workers[worker.number]
            reason = f"{name_of(self._function)} can't be started in a worker: {type(error).__name__}: {error}"
            log.warning("pool.worker_lost", "pool %(pool)r: %(reason)s", pool=self._core.options.name, reason=reason)
            self._core.counters.restarts += 1
            if self._has_been_ready:
                self._replacement.ended(now_ns, False, reason, error)
            else:
                self._replacement.give_up(reason, error)

    def _spawn(self, now_ns: int) -> None:
        while self._replacement.due(now_ns, len(self._workers)):
            number = next(number for number in range(1, len(self._workers) + 2) if number not in self._workers)
            worker = ThreadWorker(number)
            name = f"tidewire-{self._core.options.name}-{number}"
            worker.thread = threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
            with self._core.lock:
                self._workers[number] = worker
            try:
                worker.thread.start()
            except RuntimeError as error:
                with self._core.lock:
                    del self._workers[number]
                self._replacement.ended(now_ns, False, f"a thread could not be started: {error}", error)
                return

    def _retire(self) -> None:
        surplus = len(self._workers) - self._replacement.target
        for worker in sorted(self._idle, key=lambda worker: -worker.number)[: max(surplus, 0)]:
            self._dismiss(worker)

    def _dismiss(self, worker: ThreadWorker) -> None:
        worker.is_leaving = True
        self._workers.pop(worker.number, None)
        if worker.turn is None:
            self._ending_threads = [*(thread for thread in self._ending_threads if thread.is_alive()), worker.thread]
        if worker in self._idle:
            self._idle.remove(worker)
            worker.wakeup.release()

    def _overdue(self, now_ns: int) -> list[tuple[ThreadWorker, list[Task]]]:
        if self._timeout_ns is None:
            return []
        result = []
        for worker in list(self._workers.values()):
            turn = worker.turn
            # Tasks behind the present one were recalled before its timeout.
            if turn is None or turn.since_ns + self._timeout_ns > now_ns or turn.pending or not turn.is_late:
                continue
            self._dismiss(worker)
            self._abandoned.append(worker)
            self._restarts[worker.number] += 1
            self._core.counters.restarts += 1
            tasks = turn.current()
            turn.is_over = True
            result.append((worker, tasks))
        return result

    def _replace(self, worker: ThreadWorker, tasks: list[Task], now_ns: int) -> None:
        options = self._core.options
        text = "pool %(pool)r: worker %(worker)d was abandoned after task_timeout"
        log.warning("pool.worker_abandoned", text, pool=options.name, worker=worker.number)
        self._replacement.ended(now_ns, True, "task_timeout", None)
        self._core.end((), [DeadTask(task, "timeout", options.timeout_error(task)) for task in tasks])
        if len(self._abandoned) > POOL_STUCK_THREADS.default:
            self._replacement.give_up(f"{len(self._abandoned)} threads are stuck in tasks that took too long", None)

    def interrupt(self) -> None:
        """Cancel the coroutines of threads. Plain functions continue."""
        self.recall_all(time.monotonic_ns())
        with self._core.lock:
            callers = [worker.caller for worker in [*self._workers.values(), *self._abandoned] if worker.turn]
        for caller in filter(None, callers):
            caller.interrupt()

    def recall_all(self, now_ns: int) -> None:
        """Recall all tasks that no thread has begun."""
        self._recall_slow(now_ns, recall_all=True)

    # Statistics and stop

    def size(self) -> tuple[int, int]:
        """Return the number of workers, and of busy ones."""
        workers = list(self._workers.values())
        return len(workers), sum(1 for worker in workers if worker.turn is not None)

    def release_all(self, now_ns: int, kill: bool) -> None:
        """End all threads. Busy threads are abandoned; coroutines are cancelled, so that their
        threads end.
        """
        self.interrupt()
        with self._core.lock:
            for worker in list(self._workers.values()):
                if worker.turn is not None:
                    self._abandoned.append(worker)
                self._dismiss(worker)
            ending = [thread for thread in self._ending_threads if thread.is_alive()]
        for thread in ending:
            thread.join(_JOIN_S)

    def has_ended(self) -> bool:
        """Return True if all threads have ended, except abandoned ones."""
        return not self._workers

    def unfinished(self) -> list[Unit]:
        """Remove and return the tasks of all workers."""
        self.recall_all(time.monotonic_ns())
        units: list[Unit] = []
        with self._core.lock:
            for turn in [worker.turn for worker in self._workers.values() if worker.turn is not None]:
                units += turn.assignment.between(turn.assignment.done, turn.stop)
                turn.is_over = True
        return units

    def stuck(self) -> tuple[Stuck, ...]:
        """Return the busy threads with their stacks."""
        busy = [worker for worker in [*self._workers.values(), *self._abandoned] if worker.turn is not None]
        lines = stacks(worker.thread.ident or 0 for worker in busy)
        name = self._core.options.name
        return tuple(
            Stuck(one.number, name, "thread", one.thread.name, False, lines.get(one.thread.ident or 0, ()))
            for one in busy
        )

    def threads(self) -> tuple[str, ...]:
        """Return the names of abandoned threads."""
        return tuple(worker.thread.name for worker in self._abandoned)

    def snapshot(self, now_ns: int) -> list[dict[str, Any]]:
        """Return the statistics of each worker. Any thread may call."""
        return [
            {**worker_statistics(worker, now_ns), "restarts": self._restarts[worker.number]}
            for worker in list(self._workers.values())
        ]
