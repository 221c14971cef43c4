"""Page of memory that a worker process shares with its parent, as words of 64 bits."""

from __future__ import annotations

import mmap
import os


class StatusPage:
    """The page. Pools and campaigns each define the meaning of its words."""

    def __init__(self, fd: int | None = None) -> None:
        """Open the page of a file, or make one of zeros."""
        self.fd = _memory_file() if fd is None else fd
        self._map = mmap.mmap(self.fd, mmap.PAGESIZE)
        self.words = memoryview(self._map).cast("Q")

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
    os.ftruncate(fd, mmap.PAGESIZE)
    return fd
