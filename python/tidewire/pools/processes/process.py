"""Parent side of one worker process: its start, connection, tasks and end.

Process workers are new interpreters, each connected to the supervisor of the pool by one pair of
Unix sockets. Differences from ``multiprocessing``, with their reasons:

- Tasks of numbers and short texts are sent in ``marshal`` frames. Other tasks are pickled one by
  one in ``submit``: two tasks never share an object, an error is raised by its submit, and a
  redelivered task is not pickled again.
- A worker writes the position of its running task to shared memory. So the parent knows which task
  a killed worker had begun, and can recall tasks behind a slow one.
- A worker imports the main program of the parent only when it receives an object of it.
- Only workers that end without a finished task count as restarts. Others prove that the pool works,
  and ``max_deliveries`` quarantines a task that kills its workers.
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

# Larger buffers are allocated from the system and released on each read.
_READ_BYTES = 65_536


class ProcessWorker(ChildProcess):
    """One worker process."""

    def __init__(self, number: int, setup: bytes) -> None:
        self.number = number
        self.state: Literal["starting", "ready", "ending"] = "starting"
        self.assignments: deque[Assignment] = deque()
        self.sent = self.reported = 0
        self.handled = self.errors = 0
        self.started_ns = self.received_ns = time.monotonic_ns()
        self.busy_ns = 0
        self.kill_ns: int | None = None
        self.suspected_ns = 0
        self.recall_to = self.recall_ns = 0
        self._recalled_from = NOTHING
        self.cancelled_at = self.cancelled_ns = 0
        self._frames = Frames()
        self._unsent = bytearray()
        wake_read, self._wake_write = os.pipe()
        try:
            super().__init__("tidewire.pools.processes.worker", wake_read)
        except BaseException:
            os.close(self._wake_write)
            raise
        finally:
            os.close(wake_read)
        os.set_blocking(self._wake_write, False)
        self.page.words[SKIP_AFTER] = NOTHING
        self.push(setup)

    # Tasks

    @property
    def assigned(self) -> int:
        """Number of assigned positions."""
        return self.sent - self.reported

    def assign(self, assignment: Assignment, items: list[Any] | tuple[Any, ...]) -> None:
        """Send tasks, which get the next positions."""
        self.assignments.append(assignment)
        self.sent = assignment.end = self.sent + assignment.count
        self.push(frame(items))

    def take_outcomes(self, outcomes: list[Any]) -> tuple[Assignment, list[Any]]:
        """Record the next outcomes. Return their assignment and the valid outcomes, which excludes
        recalled tasks. The caller marks their tasks as ended.
        """
        assignment = self.assignments[0]
        valid = outcomes[: max(self._recalled_from - self.reported - 1, 0)]
        self.reported += len(outcomes)
        if self.reported == assignment.end:
            self.assignments.popleft()
        if self.recall_to and self.reported >= self.recall_to:
            self.recall_to, self._recalled_from = 0, NOTHING
            self.page.words[SKIP_AFTER] = NOTHING
        return assignment, valid

    def current_position(self) -> int:
        """Return the position that was begun and not reported, or 0."""
        begun = self.page.words[BEGUN]
        return begun if begun > self.reported else 0

    def current_since_ns(self) -> int:
        """Return the start time of the running task."""
        return self.page.words[STARTED_NS]

    def alive_ns(self) -> int:
        """Return the time of its last sign of life: a frame, start of a task, or heartbeat."""
        return max(self.received_ns, self.page.words[STARTED_NS], self.page.words[BEAT_NS])

    def between(self, first: int, last: int) -> list[Unit]:
        """Return the tasks at the positions from ``first`` to ``last`` that were neither reported
        nor recalled.
        """
        units: list[Unit] = []
        first, last = max(first, self.reported + 1), min(last, self._recalled_from - 1)
        for assignment in self.assignments:
            before = assignment.end - assignment.count
            start, stop = max(first - 1 - before, 0), min(last - before, assignment.count)
            if start < stop:
                units += assignment.between(start, stop)
        return units

    def tasks_at(self, position: int) -> list[Task]:
        """Return the tasks of the call at a position: one task, or a batch."""
        return singles(self.between(position, position))

    def recall(self, now_ns: int, after: int) -> None:
        """Request to skip the tasks that were not begun. ``take_recalled`` returns them a
        millisecond later.
        """
        self.page.words[SKIP_TO] = self.sent
        self.page.words[SKIP_AFTER] = after
        self.recall_to, self.recall_ns = self.sent, now_ns

    def take_recalled(self) -> list[Unit]:
        """Return the recalled tasks, which the worker skips, in their order."""
        first = max(self.page.words[BEGUN], self.page.words[SKIP_AFTER], self.reported) + 1
        units = self.between(first, self.recall_to)
        self._recalled_from = first
        return units

    def cancel(self, now_ns: int, current_position: int) -> None:
        """Request the cancellation of its running task."""
        self.cancelled_at, self.cancelled_ns = current_position, now_ns
        with contextlib.suppress(OSError):
            os.write(self._wake_write, current_position.to_bytes(8, "little"))

    # The connection

    @property
    def has_unsent(self) -> bool:
        """True if data waits for the connection."""
        return bool(self._unsent)

    def push(self, data: bytes = b"") -> bool:
        """Write as much as possible, and buffer the rest. Return True if nothing is buffered."""
        self._unsent += data
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            return False
        except OSError:
            # The worker has ended: the supervisor redelivers its tasks.
            self._unsent.clear()
        return True

    def receive(self) -> Iterator[Any]:
        """Yield received values. Raises EOFError at the end, and BrokenFrame."""
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

    # End

    def release(self, kill_ns: int) -> None:
        """Close the connection, so that the worker ends. It is killed after ``kill_ns``."""
        self.state, self.kill_ns = "ending", kill_ns
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> str:
        """See ``ChildProcess``."""
        description = super().close()
        # Closed last, as a worker also ends when this pipe closes.
        os.close(self._wake_write)
        return description


def worker_statistics(worker: ProcessWorker, now_ns: int) -> dict[str, Any]:
    """Return the statistics of a worker. Any thread may call."""
    try:
        current_position, since_ns, alive_ns = worker.current_position(), worker.current_since_ns(), worker.alive_ns()
        task = worker.tasks_at(current_position)[0].number if current_position else None
    except (ValueError, IndexError):
        # The worker has ended, or its task has, during the read.
        task, since_ns, alive_ns = None, now_ns, worker.received_ns
    busy_ns = worker.busy_ns + (now_ns - max(since_ns, worker.received_ns) if task is not None else 0)
    return {
        "worker": worker.number,
        "pid": worker.pid,
        "state": "busy" if task is not None else worker.state,
        "handled": worker.handled,
        "errors": worker.errors,
        "busy_share": share(busy_ns, now_ns - worker.started_ns),
        "given": worker.assigned,
        "heard_ms_ago": (now_ns - worker.received_ns) / 1e6,
        "last_heartbeat_ms_ago": (now_ns - alive_ns) / 1e6,
        "task": task,
        "task_ms": (now_ns - since_ns) / 1e6 if task is not None else None,
    }
