"""200 nodes subscribe in the highest slot of their links: each has one exchange open, and says 30
bytes.
"""

from __future__ import annotations

import time

from link_frames import SUBSCRIBE, frame, subscribed

from attacks.target import Target

ITEM = 6
MEMORY_MIB = 32


def attack(target: Target) -> None:
    links = [target.joined() for _ in range(200)]
    for link in links:
        link.send(frame(SUBSCRIBE, subscribed(b"raw.high"), id=1 << 32 | 65_535))
    time.sleep(3_600)
