"""Worker processes of a pool: task assignment, timeouts, dead workers and redelivery.

Only the supervisor calls this, except ``on_added`` and ``on_cancelled``. All outcomes of a burst
are delivered together, at the end of a round.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector
from typing import Any

from tidewire._log import log
from tidewire._node.ledger import Stuck
from tidewire.pools import failure
from tidewire.pools.assignment import Assignment
from tidewire.pools.core import Core
from tidewire.pools.function import FunctionRef
from tidewire.pools.policies.restarts import WorkerReplacement
from tidewire.pools.processes import main_module
from tidewire.pools.processes.health import Health, earliest
from tidewire.pools.processes.heartbeat import interval_s
from tidewire.pools.processes.outcomes import Outcomes
from tidewire.pools.processes.process import ProcessWorker, worker_statistics
from tidewire.pools.processes.redelivery import lost_tasks
from tidewire.pools.processes.task_assigner import TaskAssigner
from tidewire.pools.processes.wire import BROKEN, PROGRESS, READY, BrokenFrame, frame
from tidewire.pools.task import Unit, is_wanted, report_all

_RELEASE_NS = 1_000_000_000
_SPAWN_AT_ONCE = 2


class ProcessWorkers:
    """Worker processes of one pool."""

    def __init__(self, core: Core, spec: FunctionRef, replacement: WorkerReplacement) -> None:
        self._core = core
        self._spec = spec
        self._replacement = replacement
        self._workers: dict[int, ProcessWorker] = {}
        self._assigner = TaskAssigner(core, self._workers)
        self._health = Health(core, self)
        self._ending: set[ProcessWorker] = set()
        self._restarts: Counter[int] = Counter()
        self._outcomes = Outcomes()
        self._has_been_ready = False
        self._has_cancelled = False

    def open(self, selector: BaseSelector) -> None:
        """Prepare the setup message of the workers."""
        self._selector = selector
        main = sys.modules["__main__"]
        # A result with a class of the main program refers to it by this name.
        sys.modules.setdefault("__mp_main__", main)
        options = self._core.options
        # Functions pickled by value need no main program.
        main_source = main_module.source(main) if options.pickler == "pickle" else None
        paths, argv = [str(path) for path in sys.path], [str(word) for word in sys.argv]
        batch, beat_s = options.batch is not None, interval_s(options.heartbeat_timeout)
        limits = (options.result_bytes_max, beat_s, options.pickler, options.traced)
        setup = (tuple(self._spec), paths, argv, main_source, batch, *limits)
        self._setup = frame(setup)

    def on_added(self, count: int) -> bool:
        """Return True if the supervisor sleeps while a worker has capacity for new tasks."""
        alert, self._assigner.alert = self._assigner.alert, False
        return alert

    def on_cancelled(self) -> None:
        """See ``PoolListener``."""
        self._has_cancelled = True

    # Round of the supervisor

    def work(self, now_ns: int) -> int | None:
        """Run due actions, and return the time of the next one if no event comes first."""
        self._outcomes.deliver(self._core)
        spawning = self._spawn(now_ns)
        self._retire(now_ns)
        if self._has_cancelled:
            self._find_cancelled(now_ns)
        batching = self._assign_tasks(now_ns)
        # Last, so that it sees the tasks that were just assigned.
        deadlines = [spawning, batching, self._watch(now_ns)]
        self._outcomes.deliver(self._core)
        return earliest(deadlines)

    # Assignment

    def _assign_tasks(self, now_ns: int) -> int | None:
        if self._core.stop is not None and not self._core.stop.drain:
            return None
        while (assigned := self._assigner.next(now_ns)) is not None:
            self._send(*assigned)
        return self._assigner.again_ns

    def _send(self, worker: ProcessWorker, assignment: Assignment, items: list[Any] | tuple[Any, ...]) -> None:
        worker.received_ns = max(worker.received_ns, time.monotonic_ns()) if not worker.assigned else worker.received_ns
        worker.assign(assignment, items)
        if worker.has_unsent:
            self._selector.modify(worker.socket, EVENT_READ | EVENT_WRITE, lambda mask: self._on_socket(worker, mask))

    def _find_cancelled(self, now_ns: int) -> None:
        """Recall cancelled tasks that were not begun. The health check ends the running ones."""
        self._has_cancelled = False
        for worker in self._workers.values():
            position = worker.current_position() or worker.reported
            if not worker.recall_to and not all(map(is_wanted, worker.between(position + 1, worker.sent))):
                worker.recall(now_ns, position)

    # Outcomes

    def _on_socket(self, worker: ProcessWorker, mask: int) -> None:
        if mask & EVENT_WRITE and worker.push():
            self._selector.modify(worker.socket, EVENT_READ, lambda mask: self._on_socket(worker, mask))
        if mask & EVENT_READ:
            self.read(worker)

    def read(self, worker: ProcessWorker) -> None:
        """Receive the messages of a worker."""
        try:
            for message in worker.receive():
                self._on_message(worker, message)
        except EOFError:
            if worker.state == "ending" and not worker.ended():
                self._selector.unregister(worker.socket)
                if worker.pidfd is None:
                    worker.kill_ns = min(worker.kill_ns or 0, time.monotonic_ns() + 10_000_000)
                return
            self.end(worker)
        except BrokenFrame as error:
            text, pool = "pool %(pool)r: worker %(worker)d wrote %(error)s", self._core.options.name
            log.error("pool.worker_broken", text, pool=pool, worker=worker.number, error=error)
            self.end(worker)

    def _on_message(self, worker: ProcessWorker, message: tuple[Any, ...]) -> None:
        worker.received_ns = time.monotonic_ns()
        if message[0] == READY and worker.state == "starting":
            worker.state = "ready"
            self._has_been_ready = True
            self._core.mark_running()
        elif message[0] == BROKEN:
            self._on_broken(worker, failure.unpack(message[1]))
        elif message[0] == PROGRESS:
            if message[1] > worker.reported:
                report_all(worker.tasks_at(message[1]), *message[2:])
        elif worker.state != "ending":
            spent_ns, outcomes = message[1:3]
            self._core.put_back(self._outcomes.take(worker, outcomes))
            worker.busy_ns += spent_ns
            self._assigner.sizer.learn(len(outcomes), spent_ns / 1_000)
            self._core.counters.handling.add(spent_ns // 1_000 // len(outcomes), len(outcomes))

    # Start and end of workers

    def _spawn(self, now_ns: int) -> int | None:
        for _ in range(_SPAWN_AT_ONCE):
            if not self._replacement.due(now_ns, len(self._workers)):
                break
            number = next(number for number in range(1, len(self._workers) + 2) if number not in self._workers)
            try:
                self._register(ProcessWorker(number, self._setup))
            except OSError as error:
                self._count_end(False, f"could not be started: {error}", error)
        return self._replacement.next_ns(now_ns, len(self._workers))

    def _register(self, worker: ProcessWorker) -> None:
        self._workers[worker.number] = worker
        self._selector.register(worker.socket, EVENT_READ, lambda mask: self._on_socket(worker, mask))
        if worker.pidfd is not None:
            self._selector.register(worker.pidfd, EVENT_READ, lambda mask: self._on_exit(worker))
        if worker.has_unsent:
            self._selector.modify(worker.socket, EVENT_READ | EVENT_WRITE, lambda mask: self._on_socket(worker, mask))

    def _on_exit(self, worker: ProcessWorker) -> None:
        if self.is_active(worker):
            # A child of the worker may keep the connection open, so that it may never end.
            self.read(worker)
        if worker in self._ending or self.is_active(worker):
            self.end(worker)

    def _retire(self, now_ns: int) -> None:
        surplus = len(self._workers) - self._replacement.target
        for worker in sorted(self._workers.values(), key=lambda worker: -worker.number):
            if surplus > 0 and worker.state == "ready" and not worker.assigned:
                self._release(worker, now_ns)
                surplus -= 1

    def _release(self, worker: ProcessWorker, now_ns: int) -> None:
        del self._workers[worker.number]
        self._ending.add(worker)
        worker.release(now_ns + _RELEASE_NS)

    def end(self, worker: ProcessWorker, reason: str = "", timed_out: bool = False) -> None:
        """Remove a dead worker, and redeliver its tasks."""
        is_released = worker in self._ending
        self._ending.discard(worker)
        if self.is_active(worker):
            del self._workers[worker.number]
        position = worker.current_position()
        for file in (worker.socket, worker.pidfd):
            if file is not None and file in self._selector.get_map():
                self._selector.unregister(file)
        description = worker.close()
        if not is_released:
            self._core.put_back(
                lost_tasks(self._core, self._outcomes, worker, position, reason or description, timed_out)
            )
            self._restarts[worker.number] += 1
            is_intended = timed_out or 0 < position == worker.cancelled_at
            self._count_end(
                is_intended or worker.handled > 0, f"worker {worker.number} ended: {reason or description}", None
            )

    def _on_broken(self, worker: ProcessWorker, error: BaseException) -> None:
        """Handle a worker that failed to load or start the function. If none has ever started,
        give up.
        """
        self._release(worker, time.monotonic_ns())
        reason = f"its function {self._spec.name} can't be started in a worker: {type(error).__name__}: {error}"
        if self._has_been_ready:
            self._count_end(False, reason, error)
        else:
            self._replacement.give_up(reason, error)

    def _count_end(self, progress: bool, description: str, cause: BaseException | None) -> None:
        self._core.counters.restarts += 1
        log.warning("pool.worker_lost", "pool %(pool)r: %(reason)s", pool=self._core.options.name, reason=description)
        self._replacement.ended(time.monotonic_ns(), progress, description, cause)

    # Health

    def _watch(self, now_ns: int) -> int | None:
        deadlines = [self._health.watch(worker, now_ns) for worker in list(self._workers.values())]
        deadlines += [self._watch_ending(worker, now_ns) for worker in list(self._ending)]
        return earliest(deadlines)

    def _watch_ending(self, worker: ProcessWorker, now_ns: int) -> int | None:
        if worker.kill_ns is not None and now_ns >= worker.kill_ns:
            self.end(worker)
            return None
        return worker.kill_ns

    def is_active(self, worker: ProcessWorker) -> bool:
        """Return True if a worker may get tasks."""
        return self._workers.get(worker.number) is worker

    def recall_all(self, now_ns: int) -> None:
        """Recall all tasks that no worker has begun."""
        for worker in self._workers.values():
            if worker.sent > worker.reported and not worker.recall_to and worker.state == "ready":
                worker.recall(now_ns, max(worker.current_position(), worker.reported))

    # Statistics and stop

    def size(self) -> tuple[int, int]:
        """Return the number of workers, and of busy ones."""
        return len(self._workers), sum(1 for worker in self._workers.values() if worker.assigned)

    def interrupt(self) -> None:
        """Do nothing: processes are killed at the deadline of the stop."""

    def release_all(self, now_ns: int, kill: bool) -> None:
        """End all workers."""
        for worker in list(self._workers.values()):
            self._release(worker, now_ns)
            if kill or worker.sent > worker.reported:
                worker.kill()

    def has_ended(self) -> bool:
        """Return True if all processes have ended."""
        return not self._workers and not self._ending

    def unfinished(self) -> list[Unit]:
        """Return the tasks of all workers."""
        return [unit for worker in self._workers.values() for unit in worker.between(1, worker.sent)]

    def stuck(self) -> tuple[Stuck, ...]:
        """Return the busy workers."""
        name = self._core.options.name
        return tuple(
            Stuck(worker.number, name, "process", f"process {worker.pid}", awaiting=False)
            for worker in self._workers.values()
            # A skipped task was already recalled.
            if worker.current_position() and worker.tasks_at(worker.current_position())
        )

    def threads(self) -> tuple[str, ...]:
        """Return no names of abandoned threads: processes can be killed."""
        return ()

    def snapshot(self, now_ns: int) -> list[dict[str, Any]]:
        """Return the statistics of each worker. Any thread may call."""
        return [
            {**worker_statistics(worker, now_ns), "restarts": self._restarts[worker.number]}
            for worker in list(self._workers.values())
        ]
