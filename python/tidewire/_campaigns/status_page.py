"""A page of memory that a worker process shares with its supervisor: which run it is in, since
when, and how far it came.

The words are those of ``python/src/campaigns/status_page.rs``. The worker writes ``SINCE_US``
before ``RUN``.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

RUN: Final = 0
"""The run that it is in, plus one; 0 between ranges."""
SINCE_US: Final = 1
"""When that run began, on the monotonic clock of the machine."""
WORKER: Final = 2
"""Its number in the campaign; 0 before it has joined."""
ENDED: Final = 3
"""How many runs it has ended."""


class StatusPage:
    """The page, as the supervisor reads it."""

    def __init__(self) -> None:
        self.fd = _memory_file()
        self._map = mmap.mmap(self.fd, mmap.PAGESIZE)
        self._words = memoryview(self._map).cast("Q")

    @property
    def run(self) -> int | None:
        """The run that the worker is in."""
        run = self._words[RUN]
        return run - 1 if run else None

    @property
    def since_us(self) -> int:
        """When that run began."""
        return self._words[SINCE_US]

    @property
    def worker(self) -> int:
        """The number of the worker in its campaign, 0 before it has joined."""
        return self._words[WORKER]

    @property
    def ended(self) -> int:
        """How many runs have ended."""
        return self._words[ENDED]

    def close(self) -> None:
        """Give the memory back."""
        self._words.release()
        self._map.close()
        os.close(self.fd)


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tidewire-campaign")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, mmap.PAGESIZE)
    return fd
