"""Sixteen links of one client send PING as fast as they can."""

from __future__ import annotations

import threading

from link_frames import PING, frame

from attacks.target import Target, flood

ITEM = 1
MEMORY_MIB = 64
LINKS = 16


def attack(target: Target) -> None:
    """Flood all of them."""
    links = [target.joined() for _ in range(LINKS)]
    floods = [threading.Thread(target=flood, args=(link.socket, frame(PING, id=9, flags=0))) for link in links]
    for one in floods:
        one.start()
    for one in floods:
        one.join()
