"""Heartbeat of a worker process: a thread that writes the time while there is a task.

It stops with all Python threads: in a stopped process, or during C code that does not release the
interpreter lock. Without a task the thread writes once more, and then waits for a wakeup.
"""

from __future__ import annotations

import _thread
import time

from tidewire.pools.processes.status_page import BEAT_NS

BEATS_PER_TIMEOUT = 4
_INTERVAL_MAX_S = 0.1


def interval_s(timeout: float | None) -> float:
    """Return the interval in seconds: a quarter of the timeout, at most 0.1 s."""
    return _INTERVAL_MAX_S if timeout is None else min(timeout / BEATS_PER_TIMEOUT, _INTERVAL_MAX_S)


class Heartbeat:
    """Heartbeat between ``begin`` and ``end``, which the thread of the tasks calls."""

    def __init__(self, words: memoryview, interval: float) -> None:
        self._words = words
        self._interval_s = interval
        self._has_task = False
        self._is_idle = False
        self._wakeup = _thread.allocate_lock()
        self._wakeup.acquire()

    def start(self) -> None:
        """Start the thread."""
        _thread.start_new_thread(self._beat, ())

    def begin(self) -> None:
        """Start the heartbeat of a task. It wakes the thread only if that is idle: most tasks
        arrive during the interval of the previous heartbeat.
        """
        self._has_task = True
        # Only this thread releases the lock, so that a locked one can be released.
        if self._is_idle and self._wakeup.locked():
            self._wakeup.release()

    def end(self) -> None:
        """Stop the heartbeat of a task."""
        self._has_task = False

    def _beat(self) -> None:
        while True:
            # Each side sets its flag before it reads the other flag, so that no wakeup is lost.
            self._is_idle = True
            if self._has_task:
                self._is_idle = False
            self._wakeup.acquire(timeout=-1 if self._is_idle else self._interval_s)
            self._words[BEAT_NS] = time.monotonic_ns()
