"""A node calls another one of its own with all the credit that there is, and the two flood each
other with items in the highest lane.
"""

from __future__ import annotations

import struct
import threading

from link_frames import ANSWER, CALL, CREDIT, SUBSCRIBE, frame, subscribed
from link_frames import ITEM as ITEM_FRAME

from attacks.target import Target, drained, flood

ITEM = 14
MEMORY_MIB = 128
_URGENT = 0
_MOST = 0xFFFF_FFFF


def attack(target: Target) -> None:
    caller, callee = target.joined(), target.joined()
    callee.send(frame(SUBSCRIBE, subscribed(b"raw.stream"), id=1 << 32))
    callee.receive()
    head = struct.pack("<IQIBIH", 0, 0, 0, 0, _MOST, 10) + b"raw.stream"
    caller.send(frame(CALL, head, b"\xc0", _URGENT, 1 << 32))
    while (came := callee.receive()) is not None and came[0] != CALL:
        pass
    assert came is not None
    opened = came[1]
    callee.send(frame(CREDIT, struct.pack("<I", _MOST), b"", _URGENT | ANSWER, opened))
    drained(caller.socket)
    items = frame(ITEM_FRAME, b"", bytes(100), _URGENT, 1 << 32)
    threading.Thread(target=flood, args=(caller.socket, items), daemon=True).start()
    flood(callee.socket, frame(ITEM_FRAME, b"", bytes(100), _URGENT | ANSWER, opened))
