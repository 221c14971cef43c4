"""Four connections over HTTP send requests that find nothing, as fast as they are taken."""

from __future__ import annotations

import threading

from attacks.target import Target, flood, request, served

ITEM = 30
MEMORY_MIB = 64


def attack(target: Target) -> None:
    """Flood some connections."""
    said = request("POST", "/services/nobody/home", Content_Length=0) + b"\r\n"
    threads = [threading.Thread(target=flood, args=(target.gateway(), said)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def look(target: Target) -> list[str]:
    """Ask the gateway for something meanwhile."""
    return served(target)
