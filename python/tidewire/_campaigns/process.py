"""Supervisor's side of one worker process: its start, its run, its messages, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any

from tidewire._processes.child_process import ChildProcess

# The indices of the words are those of ``python/src/campaigns/status_page.rs``. The worker writes
# ``_SINCE_US`` before ``_RUN``, which is the number of the run plus one, and 0 between ranges.
_RUN, _SINCE_US, _WORKER, _ENDED_RUNS = range(4)
_READ_BYTES = 65_536
_MESSAGE_BYTES_MAX = 1 << 20


class WorkerProcess(ChildProcess):
    """One worker process of one campaign."""

    def __init__(self, orders: dict[str, Any], timeout_us: int | None) -> None:
        self.campaign: int = orders["campaign"]
        self.timeout_us = timeout_us
        self.started = time.monotonic()
        self.stop_at: float | None = None
        super().__init__("tidewire._campaigns.worker")
        self._received = b""
        orders = {**orders, "parent": os.getpid(), "started": self.started}
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(orders).encode() + b"\n")

    @property
    def run(self) -> int | None:
        """Number of its current run, or None."""
        run = self.page.words[_RUN]
        return run - 1 if run else None

    @property
    def number(self) -> int:
        """Number of the worker in the campaign; 0 before it has joined."""
        return self.page.words[_WORKER]

    @property
    def ended_runs(self) -> int:
        """Number of runs that it has ended."""
        return self.page.words[_ENDED_RUNS]

    def fileno(self) -> int:
        """Return a descriptor that is readable after the end of the worker: its pidfd, or its
        socket on systems without pidfd.
        """
        return self.pidfd if self.pidfd is not None else self.socket.fileno()

    def left_us(self) -> int | None:
        """Return the microseconds until the time limit of its current run; None without a run or a
        limit.
        """
        run, since = self.run, self.page.words[_SINCE_US]
        if run is None or self.timeout_us is None:
            return None
        return since + self.timeout_us - time.monotonic_ns() // 1_000

    def kill_overtime(self) -> bool:
        """Kill the worker if its current run exceeds the time limit. SIGSTOP pauses it during the
        check.
        """
        left = self.left_us()
        if left is None or left > 0 or self.ended():
            return False
        self.send_signal(signal.SIGSTOP)
        left = self.left_us()
        if left is None or left > 0:
            self.send_signal(signal.SIGCONT)
            return False
        self.kill()
        self._process.wait()
        return True

    def stop(self, within: float) -> None:
        """Request its end after the current run. A worker that has not joined the campaign is
        killed at once, others after ``within`` seconds (``kill_late``).
        """
        if self.stop_at is None:
            self.stop_at = time.monotonic() + within
            if self.number:
                self.send_signal(signal.SIGTERM)
            else:
                self.kill()

    def kill_late(self, now: float) -> None:
        """Kill the worker if it has not ended by the deadline of ``stop``."""
        if self.stop_at is not None and now >= self.stop_at:
            self.kill()

    def final_message(self) -> dict[str, Any]:
        """Return its final message; empty without one."""
        with contextlib.suppress(OSError):
            while len(self._received) < _MESSAGE_BYTES_MAX and (chunk := self.socket.recv(_READ_BYTES)):
                self._received += chunk
        line = self._received.partition(b"\n")[0]
        try:
            message = json.loads(line) if line else {}
        except ValueError:
            return {}
        return message if isinstance(message, dict) else {}
