"""Memory of a hub that clients over HTTP fill: heads and bodies that are begun, and answers that
nobody reads.
"""

from __future__ import annotations

import contextlib
import socket

from link_frames import PUBLISH, frame, published

from attacks.target import Target, request

KIB, MIB = 1 << 10, 1 << 20
LIMITS = {
    "http_connections": 256,
    "http_head_bytes": 64 * KIB,
    "http_body_bytes": MIB,
    "http_bodies_bytes": 16 * MIB,
    "http_streams": 64,
}
CONNECTION = LIMITS["http_head_bytes"] + 48 * KIB
"""Bytes that a connection takes with a head that is begun: what is read of it, and the connection
itself.
"""
WAITING = 256
"""Messages that wait for one subscriber over HTTP."""
INTAKE = 16 * MIB
"""`link_intake_bytes`."""
MESSAGE = 32 * KIB
SENDING = 2 * LIMITS["http_bodies_bytes"] // LIMITS["http_body_bytes"] * CONNECTION
"""The connections of those who send bodies."""
UNREAD = 2 * INTAKE + LIMITS["http_streams"] * (CONNECTION + 64 * KIB)
"""What is published, as it came and as it is written; and the connections of those who don't read
it.
"""


def heads(target: Target) -> list[socket.socket]:
    """Each connection sends as much of a head as it may, but the end of it."""
    links = [target.gateway() for _ in range(LIMITS["http_connections"])]
    for link in links:
        head = request("GET", "/" + "a" * 4_000)
        line = b"X-Filling: " + b"x" * 3_000 + b"\r\n"
        while len(head) + len(line) < LIMITS["http_head_bytes"] - 1_000:
            head += line
        link.sendall(head)
    return links


def bodies(target: Target) -> list[socket.socket]:
    """Each connection sends a body but its last bytes, as long as there is room for them."""
    links, length = [], LIMITS["http_body_bytes"] - 64
    head = request("POST", "/subjects/raw", Content_Type="application/json", Content_Length=length) + b"\r\n"
    for _ in range(2 * LIMITS["http_bodies_bytes"] // LIMITS["http_body_bytes"]):
        link = target.gateway()
        link.settimeout(30)
        with contextlib.suppress(OSError):
            link.sendall(head + b" " * (length - 64))
        links.append(link)
    return links


def unread(target: Target) -> list[socket.socket]:
    """As many subscribe as may, and read nothing of what a node publishes."""
    links = []
    for _ in range(LIMITS["http_streams"]):
        link = target.gateway()
        link.sendall(request("GET", "/subjects/raw.loud", Accept="text/event-stream") + b"\r\n")
        assert link.recv(65_536).startswith(b"HTTP/1.1 200")
        links.append(link)
    loud = target.joined()
    # MessagePack `bin 32`.
    payload = b"\xc6" + MESSAGE.to_bytes(4, "big") + bytes(MESSAGE)
    for _ in range(4 * WAITING):
        loud.send(frame(PUBLISH, published(b"raw.loud"), payload))
    assert loud.is_alive()
    return [*links, loud.socket]
