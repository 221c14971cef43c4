"""Eight threads show wrong tokens as fast as they are answered: one in a second each, after the
first; nodes with a right one are still to join.
"""

from __future__ import annotations

import contextlib
import threading
import time

from link_frames import hello

from attacks.target import Target, together

ITEM = 12
MEMORY_MIB = 32
THREADS = 8
AT_ONCE = 10
"""Wrong tokens of an address that are answered at once in a second."""
SLOW_S = 0.8


def attack(target: Target) -> None:

    def guess() -> None:
        while True:
            with contextlib.suppress(OSError):
                link = target.raw()
                link.send(hello(token="a wrong one"))
                link.receive()
                link.close()

    together(threading.Thread(target=guess) for _ in range(THREADS))


def look(target: Target) -> list[str]:
    problems = []
    wrong, began = target.raw(), time.monotonic()
    time.sleep(0.2)
    wrong.send(hello(token="another wrong one"))
    for _ in range(10):
        joined = time.monotonic()
        target.joined("good").close()
        if time.monotonic() - joined > 0.5:
            problems.append("a node with a right token waits as those with wrong ones do")
            break
    if wrong.receive() is None or time.monotonic() - began < SLOW_S:
        problems.append("wrong tokens are not slowed down")
    wrong.close()
    return problems


def logged(lines: list[str], seconds: float) -> list[str]:
    """Look at how many were answered: each is in the log, as that is short."""
    refused = sum("token" in line for line in lines)
    most = AT_ONCE * (seconds + 2) + THREADS * (seconds + 2)
    return [] if 0 < refused <= most else [f"{refused} wrong tokens were answered, where {most:.0f} may be"]
