"""Four connections over HTTP send requests that find nothing, as fast as they are taken."""

from __future__ import annotations

import threading

from attacks.target import Target, flood, request, served, together

ITEM = 30
MEMORY_MIB = 64
look = served


def attack(target: Target) -> None:
    said = request("POST", "/services/nobody/home", Content_Length=0) + b"\r\n"
    together(threading.Thread(target=flood, args=(target.gateway(), said)) for _ in range(4))
