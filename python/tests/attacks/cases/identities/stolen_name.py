"""A node of another token takes the name of one whose link was lost."""

from __future__ import annotations

import time

from link_frames import ERROR, WELCOME, hello

from attacks.target import TOKENS, Target

ITEM = 10
MEMORY_MIB = 32


def attack(target: Target) -> None:
    while True:
        link = target.raw()
        link.send(hello(token=TOKENS["other"], name="till"))
        link.receive()
        link.close()
        time.sleep(0.002)


def look(target: Target) -> list[str]:
    problems = []
    for _ in range(10):
        link = target.raw()
        link.send(hello(token=TOKENS["good"], name="till"))
        came = link.receive()
        # The attacker may have been first, before the name was anybody's.
        if came is not None and came[0] == WELCOME:
            break
    else:
        return ["the name could never be joined with"]
    for _ in range(20):
        link.close()
        time.sleep(0.01)
        link = target.raw()
        link.send(hello(token=TOKENS["good"], name="till"))
        came = link.receive()
        if came is None or came[0] == ERROR:
            problems.append(f"its own name was refused to it: {came}")
            break
    return problems
