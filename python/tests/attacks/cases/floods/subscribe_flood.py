"""A node subscribes and unsubscribes as fast as it can."""

from __future__ import annotations

from link_frames import SUBSCRIBE, UNSUBSCRIBE, frame, subscribed

from attacks.target import Target, flood

ITEM = 1
MEMORY_MIB = 32


def attack(target: Target) -> None:
    """Flood one link."""
    flood(
        target.joined().socket, frame(SUBSCRIBE, subscribed(b"raw.a.*.b"), id=1 << 32) + frame(UNSUBSCRIBE, id=1 << 32)
    )
