"""2,000 connections say nothing; nodes are still to be able to join."""

from __future__ import annotations

import contextlib
import resource
import time

from attacks.target import Target

ITEM = 5
MEMORY_MIB = 64
"""1,000 connections that have not joined, with 4 KiB to read into, and 2,000 nodes that the system
keeps.
"""
CONNECTIONS = 2_000


def attack(target: Target) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    links = []
    with contextlib.suppress(OSError):
        while len(links) < CONNECTIONS:
            links.append(target.raw())
    time.sleep(3_600)


def look(target: Target) -> list[str]:
    problems = []
    for _ in range(10):
        began = time.monotonic()
        target.joined("good").close()
        took_ms = (time.monotonic() - began) * 1e3
        if took_ms > 500:
            problems.append(f"joining took {took_ms:.0f} ms")
    return problems
