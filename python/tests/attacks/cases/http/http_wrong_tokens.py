"""Eight threads show wrong tokens over HTTP as fast as they are answered."""

from __future__ import annotations

import contextlib
import threading

from attacks.target import TOKENS, Target, request, served, together

ITEM = 30
MEMORY_MIB = 64
look = served


def attack(target: Target) -> None:
    said = request("GET", "/openapi.json").replace(TOKENS["all"].encode(), b"a wrong one") + b"\r\n"

    def guess() -> None:
        while True:
            with contextlib.suppress(OSError), target.gateway() as one:
                one.sendall(said)
                one.recv(65_536)

    together(threading.Thread(target=guess) for _ in range(8))
