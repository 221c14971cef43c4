"""Worker threads of a pool. They take tasks from the backlog by themselves; the supervisor only
watches them.

A thread takes several short tasks at once. Tasks behind one that takes long are taken back for
other threads. A thread can't be killed: one whose task takes too long is abandoned, and ends when
the task does.
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
from tidewire.pools.core import Core, Ended
from tidewire.pools.function import Caller, name_of
from tidewire.pools.policies.batch_policy import plan
from tidewire.pools.policies.batch_sizer import BatchSizer
from tidewire.pools.policies.restarts import WorkerReplacement
from tidewire.pools.processes.health import earliest
from tidewire.pools.results.answers import Done
from tidewire.pools.task import Task, Unit, is_cancelled, singles
from tidewire.pools.thread import ThreadTurn, ThreadWorker, look

_JOIN_S = 1.0
_SLOW_NS = 10_000_000

current = threading.local()
"""``current.core`` is the core of the pool whose worker this thread is."""


class ThreadWorkers:
    """The threads of one pool."""

    def __init__(self, core: Core, function: Callable[..., Any], replacement: WorkerReplacement) -> None:
        self._core = core
        self._function = function
        self._replacement = replacement
        self._workers: dict[int, ThreadWorker] = {}
        self._idle: list[ThreadWorker] = []
        self._abandoned: list[ThreadWorker] = []
        self._leaving: list[threading.Thread] = []
        self._restarts: Counter[int] = Counter()
        self._alert = self._has_cancelled = False
        self._sizer = BatchSizer()
        self._broken: deque[tuple[ThreadWorker, BaseException]] = deque()
        self._was_ready = False
        options = core.options
        self._timeout_ns = int(options.task_timeout * 1e9) if options.task_timeout else None
        self._watched = self._timeout_ns is not None or options.scale.min < options.scale.max

    def open(self, selector: BaseSelector) -> None:
        """Nothing to prepare."""

    def added(self, count: int) -> bool:
        """Note new tasks: wake as many idle threads. The supervisor is woken if it must watch them,
        and sleeps.
        """
        self._wake()
        if not self._watched:
            return False
        alert, self._alert = self._alert, False
        return alert

    def _wake(self) -> None:
        if not self._idle:
            return
        turns = -(-self._core.backlog.waiting // self._size())
        for _ in range(min(turns, len(self._idle))):
            self._idle.pop().gate.release()

    def _size(self) -> int:
        """How many tasks a thread takes at once."""
        waiting = self._core.backlog.waiting
        if waiting <= 1 or self._core.options.batch is not None:
            return 1
        return max(self._sizer.size(waiting, len(self._workers), 0, 0), 1)

    def cancelled(self) -> None:
        """Cancel the coroutines of cancelled tasks. Plain functions see it at their next check."""
        self._has_cancelled = True
        for worker in [*self._workers.values(), *self._abandoned]:
            if worker.caller is not None and is_cancelled(worker.current()):
                worker.caller.look()

    # A worker thread

    def _run(self, worker: ThreadWorker) -> None:
        current.core = self._core
        running_task.set(worker.running_task)
        try:
            caller = Caller(self._function, lambda: is_cancelled(worker.current()), self._core.options.traced)
        except BaseException as error:  # noqa: BLE001
            # The supervisor takes it out, or it would start others for those that are not counted
            # yet.
            self._broken.append((worker, failure.for_caller(error)))
            self._core.wake_supervisor()
            return
        self._was_ready = True
        worker.caller = caller
        self._core.running()
        try:
            while (turn := self._next(worker)) is not None:
                turn.run(caller, partial(self._flush, worker, turn))
                self._flush(worker, turn, is_end=True)
        finally:
            caller.close()
            self._leave(worker)

    def _next(self, worker: ThreadWorker) -> ThreadTurn | None:
        """Wait for tasks. None if the thread is to end."""
        while True:
            with self._core.lock:
                if worker.leaving:
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
            self._core.counters.took(count, units[0].queued_ns, now_ns)
            self._wake_sleeping_supervisor(self._watched or assignment.count > 1)
        return again_ns

    def _wake_sleeping_supervisor(self, to_watch: bool) -> None:
        if ((self._alert and to_watch) or self._core.watchers) and self._core.listener is not None:
            self._alert = False
            self._core.listener.ring()

    def _sleep(self, worker: ThreadWorker, again_ns: int | None) -> None:
        wait_s = -1.0 if again_ns is None else max(again_ns - time.monotonic_ns(), 0) / 1e9
        if worker.gate.acquire(timeout=wait_s):
            return
        with self._core.lock:
            if worker in self._idle:
                self._idle.remove(worker)
                return
        # Somebody has opened the gate between the timeout and the lock.
        worker.gate.acquire()

    def _flush(self, worker: ThreadWorker, turn: ThreadTurn, is_end: bool = False) -> None:
        """Deliver the outcomes that are there. Any thread may call."""
        now_ns = time.monotonic_ns()
        with self._core.lock:
            if is_end:
                worker.turn = None
            done, given_up = self._settle(worker, turn, now_ns)
        if done or given_up:
            self._core.end(done, given_up)
        if self._core.stop is not None or self._core.watchers:
            self._core.wake_supervisor()

    def _settle(self, worker: ThreadWorker, turn: ThreadTurn, now_ns: int) -> tuple[list[Done], list[Ended]]:
        # The tasks of an abandoned worker have ended already.
        if turn.is_over:
            return [], []
        done, given_up = turn.settle(self._core)
        count = sum([unit.count for unit, _, _ in done]) + len(given_up)
        worker.busy_ns += now_ns - turn.flushed_ns
        worker.heard_ns = turn.flushed_ns = now_ns
        worker.handled += count
        worker.errors += len(given_up)
        if count and turn.worked_ns:
            self._sizer.learn(count, turn.worked_ns / 1_000)
            self._core.counters.handling.add(turn.worked_ns // 1_000 // count, count)
            turn.worked_ns = 0
        return done, given_up

    def _leave(self, worker: ThreadWorker) -> None:
        with self._core.lock:
            if self._workers.get(worker.number) is worker:
                del self._workers[worker.number]
            if worker in self._abandoned:
                self._abandoned.remove(worker)
        self._core.wake_supervisor()

    # A turn of the supervisor

    def work(self, now_ns: int) -> int | None:
        """Do the actions that are due, and return the time of the next."""
        self._count_broken(now_ns)
        self._spawn(now_ns)
        spawning = self._replacement.next_ns(now_ns, len(self._workers))
        self._take_back(now_ns)
        with self._core.lock:
            self._retire()
            late = self._late(now_ns)
        for worker, tasks in late:
            self._replace(worker, tasks, now_ns)
        with self._core.lock:
            turns = [worker.turn for worker in self._workers.values() if worker.turn is not None]
            deadline = earliest(map(self._watch_ns, turns))
            self._alert = deadline is None
        return now_ns if late else earliest([deadline, spawning])

    def _watch_ns(self, turn: ThreadTurn) -> int | None:
        """Return when a turn must be looked at."""
        slow_ns = turn.since_ns + _SLOW_NS if turn.behind or turn.outcomes else None
        return earliest([slow_ns, None if self._timeout_ns is None else turn.since_ns + self._timeout_ns])

    def _take_back(self, now_ns: int, all_of_them: bool = False) -> None:
        """Take back tasks behind one that takes long, for other threads, and deliver the results
        before it. Cancelled tasks are dropped.
        """
        back: list[Unit] = []
        slow: list[tuple[ThreadWorker, ThreadTurn]] = []
        with self._core.lock:
            forced = all_of_them or self._has_cancelled
            self._has_cancelled = False
            for worker in self._workers.values():
                turn = worker.turn
                if turn is None or not (forced or now_ns - turn.since_ns >= _SLOW_NS):
                    continue
                if not forced and turn.behind:
                    # The next thread is not to take as many.
                    self._sizer.learn(1, (now_ns - turn.since_ns) / 1_000)
                back += turn.recall()
                slow.append((worker, turn))
        self._core.put_back(back)
        with self._core.lock:
            self._wake()
        for worker, turn in slow:
            self._flush(worker, turn)

    def _count_broken(self, now_ns: int) -> None:
        """See to threads that could not start: if none ever could, none ever will."""
        while self._broken:
            worker, error = self._broken.popleft()
            with self._core.lock:
                if self._workers.get(worker.number) is worker:
                    del self._workers[worker.number]
            reason = f"{name_of(self._function)} can't be started in a worker: {type(error).__name__}: {error}"
            log.warning("pool.worker_lost", "pool %(pool)r: %(reason)s", pool=self._core.options.name, reason=reason)
            self._core.counters.restarts += 1
            if self._was_ready:
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
        spare = len(self._workers) - self._replacement.wanted
        for worker in sorted(self._idle, key=lambda worker: -worker.number)[: max(spare, 0)]:
            self._send_away(worker)

    def _send_away(self, worker: ThreadWorker) -> None:
        worker.leaving = True
        self._workers.pop(worker.number, None)
        if worker.turn is None:
            self._leaving = [*(thread for thread in self._leaving if thread.is_alive()), worker.thread]
        if worker in self._idle:
            self._idle.remove(worker)
            worker.gate.release()

    def _late(self, now_ns: int) -> list[tuple[ThreadWorker, list[Task]]]:
        if self._timeout_ns is None:
            return []
        taken = []
        for worker in list(self._workers.values()):
            turn = worker.turn
            # A slow turn has no tasks behind the present one.
            if turn is None or turn.since_ns + self._timeout_ns > now_ns or turn.behind or not turn.is_late:
                continue
            self._send_away(worker)
            self._abandoned.append(worker)
            self._restarts[worker.number] += 1
            self._core.counters.restarts += 1
            tasks = turn.current()
            turn.is_over = True
            taken.append((worker, tasks))
        return taken

    def _replace(self, worker: ThreadWorker, tasks: list[Task], now_ns: int) -> None:
        options = self._core.options
        text = "pool %(pool)r: worker %(worker)d was abandoned after task_timeout"
        log.warning("pool.worker_abandoned", text, pool=options.name, worker=worker.number)
        self._replacement.ended(now_ns, True, "task_timeout", None)
        self._core.end((), [Ended(task, "timeout", options.late(task)) for task in tasks])
        if len(self._abandoned) > POOL_STUCK_THREADS.default:
            self._replacement.give_up(f"{len(self._abandoned)} threads are stuck in tasks that took too long", None)

    def interrupt(self) -> None:
        """Cancel coroutines that threads run. Plain functions go on."""
        self.recall_all(time.monotonic_ns())
        with self._core.lock:
            callers = [worker.caller for worker in [*self._workers.values(), *self._abandoned] if worker.turn]
        for caller in filter(None, callers):
            caller.interrupt()

    def recall_all(self, now_ns: int) -> None:
        """Take back everything that no thread has begun."""
        self._take_back(now_ns, all_of_them=True)

    # Figures for others

    def size(self) -> tuple[int, int]:
        """Return how many workers there are, and how many of them are busy."""
        workers = list(self._workers.values())
        return len(workers), sum(1 for worker in workers if worker.turn is not None)

    def let_all_go(self, now_ns: int, kill: bool) -> None:
        """Let every thread end. Those at a task are abandoned; one that runs a coroutine ends as
        that is cancelled.
        """
        self.interrupt()
        with self._core.lock:
            for worker in list(self._workers.values()):
                if worker.turn is not None:
                    self._abandoned.append(worker)
                self._send_away(worker)
            leaving = [thread for thread in self._leaving if thread.is_alive()]
        for thread in leaving:
            thread.join(_JOIN_S)

    def gone(self) -> bool:
        """Tell whether every thread has ended that can be waited for."""
        return not self._workers

    def unfinished(self) -> list[Unit]:
        """Return the tasks that workers have, and take them from their workers."""
        self.recall_all(time.monotonic_ns())
        units: list[Unit] = []
        with self._core.lock:
            for turn in [worker.turn for worker in self._workers.values() if worker.turn is not None]:
                units += turn.assignment.between(turn.assignment.done, turn.stop)
                turn.is_over = True
        return units

    def stuck(self) -> tuple[Stuck, ...]:
        """Return the threads that are at a task, with the lines that they are at."""
        at_work = [worker for worker in [*self._workers.values(), *self._abandoned] if worker.turn is not None]
        lines = stacks(worker.thread.ident or 0 for worker in at_work)
        name = self._core.options.name
        return tuple(
            Stuck(one.number, name, "thread", one.thread.name, False, lines.get(one.thread.ident or 0, ()))
            for one in at_work
        )

    def threads(self) -> tuple[str, ...]:
        """Return the names of the threads that could not be ended."""
        return tuple(worker.thread.name for worker in self._abandoned)

    def snapshot(self, now_ns: int) -> list[dict[str, Any]]:
        """Return what each worker is at. May be called from any thread."""
        return [
            {**look(worker, now_ns), "restarts": self._restarts[worker.number]}
            for worker in list(self._workers.values())
        ]
