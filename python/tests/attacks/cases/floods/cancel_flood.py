"""A node cancels calls that nobody has made."""

from __future__ import annotations

from link_frames import CANCEL, frame

from attacks.target import Target, flood

ITEM = 1
MEMORY_MIB = 32


def attack(target: Target) -> None:
    """Flood one link."""
    flood(target.joined().socket, frame(CANCEL, id=9 << 32))
