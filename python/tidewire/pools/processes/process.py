"""Parent's side of one worker process: its start, its connection, its tasks, and its end.

Process workers are fresh interpreters, each joined to the supervisor of the pool by one pair of
Unix sockets. Where this differs from ``multiprocessing`` and why:

- Tasks of numbers and short texts travel in ``marshal`` frames, others are pickled one by one when
  they are submitted: two tasks never share an object, a mistake is raised where it was made, and a
  task that goes out again is not pickled again.
- A worker notes on a page of shared memory which task it is at. So the parent knows what a worker
  that was killed had begun, and takes back what waits behind a task that takes long.
- The main program of the parent is imported by a worker only when something from it arrives.
- Only workers that ended without having finished a task count as restarts: others show that the
  pool works, and a task that kills its workers is quarantined by its deliveries.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

from tidewire._processes.child_process import ChildProcess
from tidewire.pools.assignment import Assignment
from tidewire.pools.counters import share
from tidewire.pools.processes.status_page import BEAT_NS, BEGUN, NOTHING, SKIP_AFTER, SKIP_TO, STARTED_NS
from tidewire.pools.processes.wire import Frames, frame
from tidewire.pools.task import Task, Unit, singles

# Larger pieces would come from the system each time, and go back to it.
_READ_BYTES = 65_536


class ProcessWorker(ChildProcess):
    """One worker process."""

    def __init__(self, number: int, setup: bytes) -> None:
        self.number = number
        self.state: Literal["starting", "ready", "ending"] = "starting"
        self.assignments: deque[Assignment] = deque()
        self.sent = self.reported = 0
        self.handled = self.errors = 0
        self.started_ns = self.heard_ns = time.monotonic_ns()
        self.busy_ns = 0
        self.kill_ns: int | None = None
        self.doubted_ns = 0
        self.recall_to = self.recall_ns = 0
        self._taken_back = NOTHING
        self.cancelled_at = self.cancelled_ns = 0
        self._frames = Frames()
        self._unsent = bytearray()
        heard, self._bell = os.pipe()
        try:
            super().__init__("tidewire.pools.processes.worker", heard)
        except BaseException:
            os.close(self._bell)
            raise
        finally:
            os.close(heard)
        os.set_blocking(self._bell, False)
        self.page.words[SKIP_AFTER] = NOTHING
        self.push(setup)

    # Tasks

    @property
    def given(self) -> int:
        """How many tasks it has, in positions."""
        return self.sent - self.reported

    def give(self, assignment: Assignment, items: list[Any] | tuple[Any, ...]) -> None:
        """Hand over tasks, which get the next positions."""
        self.assignments.append(assignment)
        self.sent = assignment.end = self.sent + assignment.count
        self.push(frame(items))

    def take_outcomes(self, outcomes: list[Any]) -> tuple[Assignment, list[Any]]:
        """Note that the next outcomes have arrived. Return those that count, and the assignment, in
        which the caller notes their end: outcomes of tasks that were taken back do not count.
        """
        assignment = self.assignments[0]
        counted = outcomes[: max(self._taken_back - self.reported - 1, 0)]
        self.reported += len(outcomes)
        if self.reported == assignment.end:
            self.assignments.popleft()
        if self.recall_to and self.reported >= self.recall_to:
            self.recall_to, self._taken_back = 0, NOTHING
            self.page.words[SKIP_AFTER] = NOTHING
        return assignment, counted

    def at(self) -> int:
        """Return the position that it has begun and not reported, or 0."""
        begun = self.page.words[BEGUN]
        return begun if begun > self.reported else 0

    def at_since_ns(self) -> int:
        """Return the start time of its present task."""
        return self.page.words[STARTED_NS]

    def alive_ns(self) -> int:
        """Return when it gave its last sign of life: it wrote something, began a task, or its heart
        beat.
        """
        return max(self.heard_ns, self.page.words[STARTED_NS], self.page.words[BEAT_NS])

    def between(self, first: int, last: int) -> list[Unit]:
        """Return the tasks at the positions from ``first`` to ``last`` that were neither reported
        nor taken back.
        """
        units: list[Unit] = []
        first, last = max(first, self.reported + 1), min(last, self._taken_back - 1)
        for assignment in self.assignments:
            before = assignment.end - assignment.count
            start, stop = max(first - 1 - before, 0), min(last - before, assignment.count)
            if start < stop:
                units += assignment.between(start, stop)
        return units

    def tasks_at(self, position: int) -> list[Task]:
        """Return the tasks of the call at a position: one, or several if the function takes
        batches.
        """
        return singles(self.between(position, position))

    def recall(self, now_ns: int, after: int) -> None:
        """Ask it to skip the tasks that it has not begun. ``take_back`` tells a moment later which
        these are.
        """
        self.page.words[SKIP_TO] = self.sent
        self.page.words[SKIP_AFTER] = after
        self.recall_to, self.recall_ns = self.sent, now_ns

    def take_back(self) -> list[Unit]:
        """Take back the tasks that it will not begin any more, in their order."""
        first = max(self.page.words[BEGUN], self.page.words[SKIP_AFTER], self.reported) + 1
        units = self.between(first, self.recall_to)
        self._taken_back = first
        return units

    def cancel(self, now_ns: int, at: int) -> None:
        """Ask it to end its present task, which was cancelled."""
        self.cancelled_at, self.cancelled_ns = at, now_ns
        with contextlib.suppress(OSError):
            os.write(self._bell, at.to_bytes(8, "little"))

    # The connection

    @property
    def has_unsent(self) -> bool:
        """True if the connection could not take everything yet."""
        return bool(self._unsent)

    def push(self, data: bytes = b"") -> bool:
        """Write what the connection takes, and keep the rest. True if nothing is left."""
        self._unsent += data
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            return False
        except OSError:
            # The worker has ended; its tasks are redelivered when the supervisor sees the end.
            self._unsent.clear()
        return True

    def receive(self) -> Iterator[Any]:
        """Yield what has arrived. Raises EOFError at its end, and BrokenFrame."""
        while True:
            try:
                piece = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                raise EOFError
            yield from self._frames.feed(piece)
            if len(piece) < _READ_BYTES:
                return

    # The end

    def release(self, kill_ns: int) -> None:
        """Close the connection, so that it ends by itself; after ``kill_ns`` it is killed."""
        self.state, self.kill_ns = "ending", kill_ns
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> str:
        """See ``ChildProcess``."""
        how = super().close()
        # Not before: a worker also ends at the end of its bell.
        os.close(self._bell)
        return how


def look(worker: ProcessWorker, now_ns: int) -> dict[str, Any]:
    """Return the present task of a worker. May be called from any thread."""
    try:
        at, since_ns, alive_ns = worker.at(), worker.at_since_ns(), worker.alive_ns()
        task = worker.tasks_at(at)[0].number if at else None
    except (ValueError, IndexError):
        # It came to an end, or on, while this was read.
        task, since_ns, alive_ns = None, now_ns, worker.heard_ns
    busy_ns = worker.busy_ns + (now_ns - max(since_ns, worker.heard_ns) if task is not None else 0)
    return {
        "worker": worker.number,
        "pid": worker.pid,
        "state": "busy" if task is not None else worker.state,
        "handled": worker.handled,
        "errors": worker.errors,
        "busy_share": share(busy_ns, now_ns - worker.started_ns),
        "given": worker.given,
        "heard_ms_ago": (now_ns - worker.heard_ns) / 1e6,
        "last_heartbeat_ms_ago": (now_ns - alive_ns) / 1e6,
        "task": task,
        "task_ms": (now_ns - since_ns) / 1e6 if task is not None else None,
    }
