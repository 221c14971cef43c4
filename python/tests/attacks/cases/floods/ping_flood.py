"""A node sends PING as fast as it can."""

from __future__ import annotations

from link_frames import PING, frame

from attacks.target import Target, flood

ITEM = 1
MEMORY_MIB = 32


def attack(target: Target) -> None:
    """Flood one link."""
    flood(target.joined().socket, frame(PING, id=9, flags=0))
