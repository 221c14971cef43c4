"""A node calls what nobody answers, as fast as it can."""

from __future__ import annotations

from link_frames import CALL, called, frame

from attacks.target import Target, flood

ITEM = 1
MEMORY_MIB = 32


def attack(target: Target) -> None:
    """Flood one link."""
    flood(target.joined().socket, frame(CALL, called(b"nobody.is.there", deadline_ms=0), b"\xc0", id=1 << 32))
