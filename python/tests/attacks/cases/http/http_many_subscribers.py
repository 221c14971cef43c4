"""A client subscribes over HTTP 400 times, with a pattern of its own each time, and a node floods a
subject that they all match.
"""

from __future__ import annotations

import itertools

from link_frames import PUBLISH, frame, published

from attacks.target import Target, drained, flood, request, served

ITEM = 30
MEMORY_MIB = 160
"""`link_intake_bytes`, 256 messages for each subscriber, and what is written for them."""
look = served
_SUBSCRIBERS = 400
_TOKENS = [b"raw", b"news", b"of", b"the", b"day", b"in", b"town", b"now", b"here", b"again"]


def attack(target: Target) -> None:
    patterns = itertools.product(*((token.decode(), "*") for token in _TOKENS[1:]), ("",))
    for pattern in itertools.islice(patterns, _SUBSCRIBERS):
        one = target.gateway()
        subject = ".".join(("raw", *pattern[:-1]))
        one.sendall(request("GET", f"/subjects/{subject}", Accept="text/event-stream") + b"\r\n")
        assert one.recv(65_536).startswith(b"HTTP/1.1 200"), subject
        drained(one)
    flood(target.joined().socket, frame(PUBLISH, published(b".".join(_TOKENS)), bytes(40)))
