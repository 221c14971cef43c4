"""The heartbeat of a worker process: a thread that writes the time while there is a task.

It stops with whatever stops every thread of Python: a stopped process, or C code that does not let
go of the interpreter lock. A worker without a task sleeps: its thread looks once more, and then
waits to be woken.
"""

from __future__ import annotations

import _thread
import time

from tidewire.pools.processes.status_page import BEAT_NS

BEATS_PER_TIMEOUT = 4
_INTERVAL_MAX_S = 0.1


def interval_s(timeout: float | None) -> float:
    """Return the time between two beats: often enough that a late one does no harm, and that people
    see it move.
    """
    return _INTERVAL_MAX_S if timeout is None else min(timeout / BEATS_PER_TIMEOUT, _INTERVAL_MAX_S)


class Heartbeat:
    """Beats from ``begin`` to ``end``, which the thread that runs the tasks calls."""

    def __init__(self, words: memoryview, interval: float) -> None:
        self._words = words
        self._interval_s = interval
        self._working = False
        self._resting = False
        self._rest = _thread.allocate_lock()
        self._rest.acquire()

    def start(self) -> None:
        """Start the thread."""
        _thread.start_new_thread(self._beat, ())

    def begin(self) -> None:
        """There is something to do. The thread is woken only if it rests: most tasks come while it
        waits for its next beat.
        """
        self._working = True
        # Nobody else releases the lock, so that one found locked can be released.
        if self._resting and self._rest.locked():
            self._rest.release()

    def end(self) -> None:
        """There is nothing to do."""
        self._working = False

    def _beat(self) -> None:
        while True:
            # It says that it rests before it looks, and ``begin`` says that it works before that
            # looks: one of them sees the other.
            self._resting = True
            if self._working:
                self._resting = False
            self._rest.acquire(timeout=-1 if self._resting else self._interval_s)
            self._words[BEAT_NS] = time.monotonic_ns()
