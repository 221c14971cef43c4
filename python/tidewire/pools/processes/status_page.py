"""Page of memory that a worker process shares with its parent: its present task, its heartbeat, and
the tasks to skip.

The worker writes ``STARTED_NS`` before ``BEGUN``, so that a reader of a task's number sees no start
before its own. The parent writes ``SKIP_TO`` before ``SKIP_AFTER`` and then waits a moment before
it reads ``BEGUN``: from then on the worker begins no task within the range, as it writes ``BEGUN``
first and looks at the range second.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

BEGUN: Final = 0
"""The position of the task that was begun last; positions count from 1 what one worker was
given.
"""
STARTED_NS: Final = 1
"""When that was, on the monotonic clock of the machine."""
SKIP_AFTER: Final = 2
"""Positions above this one are skipped ..."""
SKIP_TO: Final = 3
"""... up to this one."""
BEAT_NS: Final = 4
"""When the worker last showed, while it had a task, that it can run Python."""

NOTHING: Final = 2**63
_BYTES = mmap.PAGESIZE


class StatusPage:
    """The page, as numbers of 64 bits."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, _BYTES)
        self.words = memoryview(self._map).cast("Q")

    @classmethod
    def create(cls) -> StatusPage:
        """Make a page that skips nothing."""
        board = cls(_memory_file())
        board.words[SKIP_AFTER] = NOTHING
        return board

    def close(self) -> None:
        """Give the memory back. The last values of the words are gone."""
        self.words.release()
        self._map.close()
        os.close(self.fd)


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tidewire-worker")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _BYTES)
    return fd
