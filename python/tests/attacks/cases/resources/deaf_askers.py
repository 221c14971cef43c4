"""12 nodes send PING without end, and read no answer."""

from __future__ import annotations

import contextlib

from link_frames import PING, frame

from attacks.target import FLOOD_BYTES, Target

ITEM = 7
MEMORY_MIB = 448
"""As for deaf subscribers; answers that have to be sent may fill half as much again."""


def attack(target: Target) -> None:
    block = frame(PING, id=9, flags=0) * (FLOOD_BYTES // 16)
    links = [target.joined().socket for _ in range(12)]
    for link in links:
        link.settimeout(0.005)
    while links:
        for link in list(links):
            try:
                with contextlib.suppress(TimeoutError):
                    link.sendall(block)
            except OSError:
                links.remove(link)
