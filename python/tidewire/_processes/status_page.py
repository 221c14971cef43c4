"""Memory page that a worker process shares with its parent, as 64-bit words."""

from __future__ import annotations

import mmap
import os


class StatusPage:
    """Shared page of 64-bit words, whose meaning pools and campaigns define."""

    def __init__(self, fd: int | None = None) -> None:
        """Map the page of a descriptor, or create a zeroed page."""
        self.fd = _memory_file() if fd is None else fd
        self._map = mmap.mmap(self.fd, mmap.PAGESIZE)
        self.words = memoryview(self._map).cast("Q")

    def close(self) -> None:
        """Release the memory. The values of the words are lost."""
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
