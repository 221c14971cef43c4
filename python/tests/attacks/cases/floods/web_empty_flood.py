"""A client that has shown no token sends empty messages of WebSocket as fast as it can."""

from __future__ import annotations

from attacks.target import Target, flood, web

ITEM = 1
MEMORY_MIB = 8


def attack(target: Target) -> None:
    """Join again as soon as the hub has had enough."""
    while True:
        begin(target)


def begin(target: Target) -> None:
    """Flood one link."""
    flood(target.http(), web(2))
