"""The worker processes of a pool: who gets which tasks, who is late or gone, and what becomes of their tasks.

Only the keeper calls this, but for ``added``. All outcomes of a burst are delivered together, at the end of a turn.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector
from typing import Any

from tidewire._ledger import Stuck
from tidewire._limits import POOL_START_MS
from tidewire._log import logger
from tidewire.pools import failure, main_module
from tidewire.pools.allot import Allotment
from tidewire.pools.batching import plan
from tidewire.pools.core import Core
from tidewire.pools.function import Spec
from tidewire.pools.lost import lost_tasks
from tidewire.pools.outcomes import Outcomes
from tidewire.pools.process import ProcessWorker, look
from tidewire.pools.replacing import Replacing
from tidewire.pools.task import Task
from tidewire.pools.wire import BROKEN, READY, BrokenFrame, frame

_SLOW_NS = 10_000_000
_RECALL_NS = 1_000_000
_SILENT_NS = 10_000_000_000
_LET_GO_NS = 1_000_000_000
_SPAWN_AT_ONCE = 2
_BATCH_BYTES_MAX = 262_144


class ProcessCrew:
    """The processes of one pool."""

    def __init__(self, core: Core, spec: Spec, replacing: Replacing) -> None:
        self._core = core
        self._spec = spec
        self._replacing = replacing
        self._allotment = Allotment()
        self._workers: dict[int, ProcessWorker] = {}
        self._ending: set[ProcessWorker] = set()
        self._restarts: Counter[int] = Counter()
        self._outcomes = Outcomes()
        self._was_ready = False
        self._alert = False
        self._timeout_ns = int(core.options.task_timeout * 1e9) if core.options.task_timeout else None

    def open(self, selector: BaseSelector) -> None:
        """Prepare what every worker is told first."""
        self._selector = selector
        main = sys.modules["__main__"]
        # What a worker returns of a class of the main program bears the name under which the worker imported it.
        sys.modules.setdefault("__mp_main__", main)
        options = self._core.options
        place = main_module.source(main)
        paths, argv = [str(path) for path in sys.path], [str(word) for word in sys.argv]
        self._setup = frame(
            (tuple(self._spec), paths, argv, place, options.batch is not None, options.result_bytes_max)
        )

    def added(self, count: int) -> bool:
        """Hear of new tasks. The keeper is woken only if it has fallen asleep with a worker that has room."""
        alert, self._alert = self._alert, False
        return alert

    # A turn

    def work(self, now_ns: int) -> int | None:
        """Do what is due, and return when the next thing is, if nothing happens before."""
        self._outcomes.deliver(self._core)
        spawning = self._spawn(now_ns)
        self._retire(now_ns)
        batching = self._allot(now_ns)
        # Last, so that it sees what was handed out just now.
        deadlines = [spawning, batching, self._watch(now_ns)]
        self._outcomes.deliver(self._core)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # Tasks go out

    def _allot(self, now_ns: int) -> int | None:
        if self._core.stop is not None and not self._core.stop.drain:
            return None
        if self._core.options.batch is not None:
            return self._allot_calls(now_ns)
        while True:
            with self._core.lock:
                worker, tasks = self._next_batch()
                if worker is None:
                    self._alert = self._has_room()
                    return None
                if not tasks:
                    return None
                self._core.tally.took(tasks, now_ns)
            self._give(worker, tasks, [task.payload for task in tasks])

    def _next_batch(self) -> tuple[ProcessWorker | None, list[Task]]:
        backlog = self._core.backlog
        if not backlog.waiting:
            return None, []
        ready = self._open_workers()
        for worker in sorted(ready, key=lambda worker: len(worker.units)):
            count = self._allotment.size(backlog.waiting, len(ready), len(worker.units), len(worker.batch_ends))
            if count:
                return worker, backlog.take_retried() or backlog.take(count, _BATCH_BYTES_MAX)
        return None, []

    def _has_room(self) -> bool:
        return any(
            self._allotment.size(1, 1, len(worker.units), len(worker.batch_ends)) for worker in self._open_workers()
        )

    def _open_workers(self) -> list[ProcessWorker]:
        return [worker for worker in self._workers.values() if worker.state == "ready" and not worker.recall_to]

    def _allot_calls(self, now_ns: int) -> int | None:
        """Hand out calls of a function that takes batches. A worker gets one at a time: the next one may grow meanwhile."""
        batch = self._core.options.batch
        assert batch is not None
        while True:
            with self._core.lock:
                backlog, ready = self._core.backlog, self._open_workers()
                idle = [worker for worker in ready if not worker.units]
                first = backlog.first()
                if first is None or not idle:
                    self._alert = bool(idle)
                    return None
                call = plan(batch, now_ns, backlog.waiting, first.queued_ns, len(ready) - len(idle))
                if not call.size and not first.deliveries:
                    self._alert = True
                    return call.again_ns
                tasks = backlog.take_retried() or backlog.take(call.size)
                self._core.tally.took(tasks, now_ns)
            self._give(idle[0], [tasks], [[task.payload for task in tasks]])

    def _give(self, worker: ProcessWorker, units: Any, items: list[Any]) -> None:
        worker.heard_ns = max(worker.heard_ns, time.monotonic_ns()) if not worker.units else worker.heard_ns
        worker.give(units, items)
        if worker.has_unsent:
            self._selector.modify(worker.socket, EVENT_READ | EVENT_WRITE, lambda mask: self._on_socket(worker, mask))

    # Outcomes come in

    def _on_socket(self, worker: ProcessWorker, mask: int) -> None:
        if mask & EVENT_WRITE and worker.push():
            self._selector.modify(worker.socket, EVENT_READ, lambda mask: self._on_socket(worker, mask))
        if mask & EVENT_READ:
            self._read(worker)

    def _read(self, worker: ProcessWorker) -> None:
        try:
            for message in worker.receive():
                self._hear(worker, message)
        except EOFError:
            if worker.state == "ending" and not worker.ended():
                self._selector.unregister(worker.socket)
                if worker.pidfd is None:
                    worker.kill_ns = min(worker.kill_ns or 0, time.monotonic_ns() + 10_000_000)
                return
            self._end(worker)
        except BrokenFrame as error:
            logger.error("pool %r: worker %d wrote %s", self._core.options.name, worker.number, error)
            self._end(worker)

    def _hear(self, worker: ProcessWorker, message: tuple[Any, ...]) -> None:
        worker.heard_ns = time.monotonic_ns()
        if message[0] == READY and worker.state == "starting":
            worker.state = "ready"
            self._was_ready = True
            self._core.running()
        elif message[0] == BROKEN:
            self._broken(worker, failure.unpack(message[1]))
        elif worker.state != "ending":
            self._take_outcomes(worker, message[1], message[2])

    def _take_outcomes(self, worker: ProcessWorker, spent_ns: int, outcomes: list[Any]) -> None:
        self._core.put_back(self._outcomes.take(worker, outcomes))
        worker.busy_ns += spent_ns
        self._allotment.learn(len(outcomes), spent_ns / 1_000)
        self._core.tally.handling.add(spent_ns // 1_000 // len(outcomes), len(outcomes))

    # Workers come and go

    def _spawn(self, now_ns: int) -> int | None:
        for _ in range(_SPAWN_AT_ONCE):
            if not self._replacing.due(now_ns, len(self._workers)):
                break
            number = next(number for number in range(1, len(self._workers) + 2) if number not in self._workers)
            try:
                self._register(ProcessWorker(number, self._setup))
            except OSError as error:
                self._gone(False, f"could not be started: {error}", error)
        return self._replacing.next_ns(now_ns, len(self._workers))

    def _register(self, worker: ProcessWorker) -> None:
        self._workers[worker.number] = worker
        self._selector.register(worker.socket, EVENT_READ, lambda mask: self._on_socket(worker, mask))
        if worker.pidfd is not None:
            self._selector.register(worker.pidfd, EVENT_READ, lambda mask: self._on_exit(worker))
        if worker.has_unsent:
            self._selector.modify(worker.socket, EVENT_READ | EVENT_WRITE, lambda mask: self._on_socket(worker, mask))

    def _on_exit(self, worker: ProcessWorker) -> None:
        if worker.number in self._workers and self._workers[worker.number] is worker:
            # A child of the worker may keep the connection open, so its end can't be waited for.
            self._read(worker)
        if worker in self._ending or self._workers.get(worker.number) is worker:
            self._end(worker)

    def _retire(self, now_ns: int) -> None:
        spare = len(self._workers) - self._replacing.wanted
        for worker in sorted(self._workers.values(), key=lambda worker: -worker.number):
            if spare > 0 and worker.state == "ready" and not worker.units:
                self._let_go(worker, now_ns)
                spare -= 1

    def _let_go(self, worker: ProcessWorker, now_ns: int) -> None:
        del self._workers[worker.number]
        self._ending.add(worker)
        worker.let_go(now_ns + _LET_GO_NS)

    def _end(self, worker: ProcessWorker, why: str = "", timed_out: bool = False) -> None:
        """Bury a worker, and see to what it was given."""
        expected = worker in self._ending
        self._ending.discard(worker)
        if self._workers.get(worker.number) is worker:
            del self._workers[worker.number]
        at = worker.at()
        self._unregister(worker)
        how = worker.end()
        if not expected:
            self._core.put_back(lost_tasks(self._core, self._outcomes, worker, at, why or how, timed_out))
            self._restarts[worker.number] += 1
            self._gone(timed_out or worker.handled > 0, f"worker {worker.number} ended: {why or how}", None)

    def _unregister(self, worker: ProcessWorker) -> None:
        for file in (worker.socket, worker.pidfd):
            if file is not None and file in self._selector.get_map():
                self._selector.unregister(file)

    def _broken(self, worker: ProcessWorker, error: BaseException) -> None:
        """A worker could not import the function. If none ever could, none ever will."""
        self._let_go(worker, time.monotonic_ns())
        reason = f"its function {self._spec.name} can't be imported by a worker: {type(error).__name__}: {error}"
        if self._was_ready:
            self._gone(False, reason, error)
        else:
            self._replacing.give_up(reason, error)

    def _gone(self, progress: bool, how: str, cause: BaseException | None) -> None:
        self._core.tally.restarts += 1
        logger.warning("pool %r: %s", self._core.options.name, how)
        self._replacing.ended(time.monotonic_ns(), progress, how, cause)

    # Health

    def _watch(self, now_ns: int) -> int | None:
        deadlines = [self._watch_one(worker, now_ns) for worker in list(self._workers.values())]
        deadlines += [self._watch_ending(worker, now_ns) for worker in list(self._ending)]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _watch_ending(self, worker: ProcessWorker, now_ns: int) -> int | None:
        if worker.kill_ns is not None and now_ns >= worker.kill_ns:
            self._end(worker)
            return None
        return worker.kill_ns

    def _watch_one(self, worker: ProcessWorker, now_ns: int) -> int | None:
        if worker.state == "starting":
            return self._limit(worker, now_ns, worker.started_ns + POOL_START_MS.default * 1_000_000, "did not start")
        if worker.recall_ns:
            return self._watch_recall(worker, now_ns)
        if not worker.units:
            return None
        at = worker.at()
        if not at:
            return self._watch_unbegun(worker, now_ns)
        since_ns = worker.at_since_ns()
        if self._timeout_ns is not None and now_ns >= since_ns + self._timeout_ns:
            self._kill_late(worker, at)
            return now_ns
        limits = [since_ns + self._timeout_ns] if self._timeout_ns is not None else []
        behind = self._watch_behind(worker, now_ns, at, since_ns)
        return min([*limits, *([behind] if behind is not None else [])], default=None)

    def _watch_unbegun(self, worker: ProcessWorker, now_ns: int) -> int | None:
        # It may begin at any moment, and from then on the limits of its task hold.
        limit_ns = self._limit(worker, now_ns, worker.heard_ns + _SILENT_NS, "did not begin its task")
        soon_ns = now_ns + _SLOW_NS if len(worker.units) > 1 else None
        late_ns = now_ns + self._timeout_ns if self._timeout_ns is not None else None
        return min(deadline for deadline in (limit_ns, soon_ns, late_ns) if deadline is not None)

    def _kill_late(self, worker: ProcessWorker, at: int) -> None:
        # Its outcome may have arrived since the last look.
        self._read(worker)
        if self._workers.get(worker.number) is worker and worker.at() == at:
            self._end(worker, "killed after task_timeout", timed_out=True)

    def _watch_behind(self, worker: ProcessWorker, now_ns: int, at: int, since_ns: int) -> int | None:
        """Take back what waits behind a task that takes long, as another worker may do it sooner."""
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

    def _limit(self, worker: ProcessWorker, now_ns: int, limit_ns: int, what: str) -> int | None:
        if now_ns < limit_ns:
            return limit_ns
        self._end(worker, f"killed because it {what}")
        return now_ns

    def recall_all(self, now_ns: int) -> None:
        """Ask for everything that no worker has begun."""
        for worker in self._workers.values():
            if worker.sent > worker.reported and not worker.recall_to and worker.state == "ready":
                worker.recall(now_ns, max(worker.at(), worker.reported))

    # What others ask

    def size(self) -> tuple[int, int]:
        """Return how many workers there are, and how many of them are busy."""
        return len(self._workers), sum(1 for worker in self._workers.values() if worker.units)

    def let_all_go(self, now_ns: int, kill: bool) -> None:
        """Let every worker end."""
        for worker in list(self._workers.values()):
            self._let_go(worker, now_ns)
            if kill or worker.sent > worker.reported:
                worker.kill()

    def gone(self) -> bool:
        """Tell whether no process is left."""
        return not self._workers and not self._ending

    def unfinished(self) -> list[Task]:
        """Return the tasks that workers have."""
        return [
            task
            for worker in self._workers.values()
            for position in range(worker.reported + 1, worker.sent + 1)
            for task in worker.unit(position)
        ]

    def stuck(self) -> tuple[Stuck, ...]:
        """Return the workers that are at a task."""
        name = self._core.options.name
        return tuple(
            Stuck(worker.number, name, "process", f"process {worker.process.pid}", awaiting=False)
            for worker in self._workers.values()
            # What it skips has been taken back already.
            if worker.at() and worker.unit(worker.at())
        )

    def threads(self) -> tuple[str, ...]:
        """Return the names of threads that can't be ended: none, as processes can be killed."""
        return ()

    def snapshot(self, now_ns: int) -> list[dict[str, Any]]:
        """Return what each worker is at. May be called from any thread."""
        return [
            {**look(worker, now_ns), "restarts": self._restarts[worker.number]}
            for worker in list(self._workers.values())
        ]

    def forked(self) -> None:
        """In a forked child: let go of the parent's connections, so that workers see the end of the parent."""
        for worker in [*self._workers.values(), *self._ending]:
            worker.close_copies()
