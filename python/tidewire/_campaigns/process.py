"""Supervisor's side of one worker process: its start, its run, its messages, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any

from tidewire._processes.child_process import ChildProcess

# The words of the page are those of ``python/src/campaigns/status_page.rs``. The worker writes
# ``_SINCE_US`` before ``_RUN``, which is the number of the run plus one, and 0 between ranges.
_RUN, _SINCE_US, _WORKER, _ENDED_RUNS = range(4)
_READ_BYTES = 65_536
_SAID_BYTES_MAX = 1 << 20


class WorkerProcess(ChildProcess):
    """One worker process of one campaign."""

    def __init__(self, orders: dict[str, Any], timeout_us: int | None) -> None:
        self.campaign: int = orders["campaign"]
        self.timeout_us = timeout_us
        self.started = time.monotonic()
        self.stop_at: float | None = None
        super().__init__("tidewire._campaigns.worker")
        self._said = b""
        orders = {**orders, "parent": os.getpid(), "started": self.started}
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(orders).encode() + b"\n")

    @property
    def run(self) -> int | None:
        """The run that it is in."""
        run = self.page.words[_RUN]
        return run - 1 if run else None

    @property
    def number(self) -> int:
        """Its number in the campaign, 0 before it has joined."""
        return self.page.words[_WORKER]

    @property
    def ended_runs(self) -> int:
        """How many runs it has ended."""
        return self.page.words[_ENDED_RUNS]

    def fileno(self) -> int:
        """Descriptor that is readable once the worker has ended: its process, or its connection
        where processes can't be waited for.
        """
        return self.pidfd if self.pidfd is not None else self.socket.fileno()

    def left_us(self) -> int | None:
        """Return how many microseconds are left for the run that it is in; None if it is in none,
        or there is no limit.
        """
        run, since = self.run, self.page.words[_SINCE_US]
        if run is None or self.timeout_us is None:
            return None
        return since + self.timeout_us - time.monotonic_ns() // 1_000

    def kill_overtime(self) -> bool:
        """Kill it if it is in a run that is over its time limit. It stands still while that is
        looked at.
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
        """Ask it to end after the run that it is in. It is killed if that takes longer than so many
        seconds, and at once if it has not joined the campaign.
        """
        if self.stop_at is None:
            self.stop_at = time.monotonic() + within
            if self.number:
                self.send_signal(signal.SIGTERM)
            else:
                self.kill()

    def kill_late(self, now: float) -> None:
        """Kill it if it was asked to end, and has not in time."""
        if self.stop_at is not None and now >= self.stop_at:
            self.kill()

    def said(self) -> dict[str, Any]:
        """Return its final message; empty if it could not send one."""
        with contextlib.suppress(OSError):
            while len(self._said) < _SAID_BYTES_MAX and (piece := self.socket.recv(_READ_BYTES)):
                self._said += piece
        line = self._said.partition(b"\n")[0]
        try:
            said = json.loads(line) if line else {}
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}
