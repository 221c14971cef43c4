"""A node announces 10,000 services of 16 KB, and asks for the list of services 2,800 times without
reading the answers.
"""

from __future__ import annotations

import contextlib
import time

from link_frames import CALL, SUBSCRIBE, called, fields, frame, subscribed

from attacks.target import Target, description

ITEM = 3
MEMORY_MIB = 96
"""What it may say of itself, as it is kept and as it is listed, and twice what may wait for one
link.
"""


def attack(target: Target) -> None:
    link, asker = target.joined(), target.joined()
    with contextlib.suppress(OSError):
        for number in range(10_000):
            pattern, says = b"svc.many.%d.*" % number, fields(**description("many", str(number), 16_000))
            link.socket.sendall(frame(SUBSCRIBE, subscribed(pattern), says, id=1 << 32 | number))
        for number in range(2_800):
            asker.socket.sendall(frame(CALL, called(b"$hub.services", deadline_ms=0), b"\xc0", id=1 << 32 | number))
    time.sleep(3_600)
