"""Eight threads show wrong tokens as fast as they are answered; nodes with a right one are still to join."""

from __future__ import annotations

import contextlib
import threading
import time

from link_frames import hello

from attacks.target import Target

ITEM = 12
MEMORY_MIB = 32
THREADS = 8


def attack(target: Target) -> None:
    """Guess."""

    def guess() -> None:
        while True:
            with contextlib.suppress(OSError):
                link = target.raw()
                link.send(hello(token="a wrong one"))
                link.receive()
                link.close()

    guessing = [threading.Thread(target=guess) for _ in range(THREADS)]
    for one in guessing:
        one.start()
    for one in guessing:
        one.join()


def look(target: Target) -> list[str]:
    """Join with a right token, and count how many wrong ones are answered meanwhile."""
    problems = []
    time.sleep(0.2)
    answered = 0
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        began = time.monotonic()
        target.joined("good").close()
        answered += 1
        if time.monotonic() - began > 0.5:
            problems.append("a node with a right token waits as those with wrong ones do")
            break
        time.sleep(0.01)
    return problems
