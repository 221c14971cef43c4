"""12 nodes subscribe to what another one publishes without end, and read nothing."""

from __future__ import annotations

from link_frames import PUBLISH, SUBSCRIBE, frame, published, subscribed

from attacks.target import Target, flood

ITEM = 7
MEMORY_MIB = 384
"""`hub_queue_bytes`, half as much again for what memory is taken in blocks, and what is under
way.
"""


def attack(target: Target) -> None:
    links = [target.joined() for _ in range(12)]
    for link in links:
        link.send(frame(SUBSCRIBE, subscribed(b"raw.loud"), id=1 << 32))
        link.receive()
    flood(target.joined().socket, frame(PUBLISH, published(b"raw.loud"), bytes(32_768)))
