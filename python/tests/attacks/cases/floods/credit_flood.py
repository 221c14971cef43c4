"""A node gives credit to exchanges that nobody has."""

from __future__ import annotations

from link_frames import CREDIT, frame

from attacks.target import Target, flood

ITEM = 1
MEMORY_MIB = 32


def attack(target: Target) -> None:
    """Flood one link."""
    flood(target.joined().socket, frame(CREDIT, (1 << 16).to_bytes(4, "little"), id=9 << 32))
