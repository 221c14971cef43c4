"""A node floods its link over a Unix socket with calls to nobody and empty messages."""

from __future__ import annotations

from link_frames import CALL, PUBLISH, called, frame, published

from attacks.target import Target, flood

ITEM = 1
MEMORY_MIB = 32


def attack(target: Target) -> None:
    """Flood one link."""
    call = frame(CALL, called(b"raw.nobody", deadline_ms=0), b"\xc0", id=1 << 32)
    flood(target.joined(scheme="unix").socket, call + frame(PUBLISH, published(b"raw.none")))
