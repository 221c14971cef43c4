"""Target of an attack: access to the hub that it attacks."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from link_frames import Raw, hello

TOKENS = {
    "good": "the good client",
    "all": "may do everything",
    "none": "may do nothing",
    "listener": "may subscribe to everything",
    "other": "may do everything, too",
    "rome": "is that of a partner",
    "rome2": "is that of another partner",
}
"""The tokens of the hub by their users."""
FLOOD_BYTES = 1 << 18
"""What a flood sends in one go."""


@dataclass(frozen=True)
class Target:
    """A hub that is attacked.

    Attributes:
        tide: Its URL for frames on TCP.
        ws: Its URL for WebSocket.
        pid: Its process.
        web: Its URL for HTTP, if it has one.
        unix: Its URL for a Unix socket.
        tls: Its URL for TLS, where there is an openssl to make a certificate with.
        other: The port of a hub that it tries to join.
    """

    tide: str
    ws: str
    pid: int
    web: str = ""
    unix: str = ""
    tls: str = ""
    other: int = 0

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Target:
        return cls(**json.loads(text))

    @property
    def place(self) -> tuple[str, int]:
        host, port = self.tide.split("://")[1].rsplit(":", 1)
        return host, int(port)

    def raw(self, scheme: str = "tide") -> Raw:
        urls = {"tide": self.tide, "ws": self.ws, "unix": self.unix, "tls": self.tls}
        return Raw(urls[scheme], trusting=True)

    def joined(self, user: str = "all", scheme: str = "tide", **texts: str) -> Raw:
        raw = self.raw(scheme)
        raw.send(hello(token=TOKENS[user], **texts))
        came = raw.receive()
        assert came is not None and came[0] == 2, came
        return raw

    def gateway(self) -> socket.socket:
        """Connect to the HTTP gateway, and say nothing."""
        host, port = self.web.split("://")[1].rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=30)

    def asked(self, path: str = "/openapi.json", user: str = "good") -> int:
        """Ask the gateway for something as a user, and return the status."""
        with self.gateway() as one:
            one.sendall(request("GET", path, user) + b"\r\n")
            return int(one.recv(65_536).split(b" ", 2)[1])

    def http(self) -> socket.socket:
        """Begin a WebSocket, and give its bare socket: what goes over it is up to the attack."""
        return self.raw("ws").socket


def request(method: str, path: str, user: str = "all", **headers: object) -> bytes:
    """The head of a request to the gateway, without the line that ends it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKENS[user]}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n").encode()


def served(target: Target) -> list[str]:
    """Look whether the gateway answers others within a second while it is attacked."""
    time.sleep(0.1)
    longest = 0.0
    for _ in range(5):
        began = time.monotonic()
        status = target.asked()
        longest = max(longest, time.monotonic() - began)
        if status != 200:
            return [f"a good request got {status}"]
    return [f"a good request took {longest:.1f} s"] if longest > 1.0 else []


def description(service: str, instance: str, bytes: int = 0) -> dict[str, str]:
    """Description of a service instance, in about so many bytes."""
    info = {"name": service, "description": "m" * bytes, "visibility": "private", "methods": [], "events": []}
    return {"service": json.dumps(info | {"instances": [instance]})}


def drained(one: socket.socket) -> None:
    """Read and forget what comes, until the end."""

    def read() -> None:
        room = bytearray(FLOOD_BYTES)
        with contextlib.suppress(OSError):
            while one.recv_into(room):
                pass

    one.settimeout(None)
    threading.Thread(target=read, daemon=True).start()


def flood(one: socket.socket, data: bytes | Callable[[], bytes]) -> None:
    """Send the same again and again, or what a function makes, as fast as it is taken, and read
    what comes.
    """
    drained(one)
    if not callable(data):
        block = data * max(1, FLOOD_BYTES // len(data))
    with contextlib.suppress(OSError):
        while True:
            one.sendall(data() if callable(data) else block)


def together(threads: Iterable[threading.Thread]) -> None:
    """Start threads, and wait for their ends."""
    begun = list(threads)
    for one in begun:
        one.start()
    for one in begun:
        one.join()


def web(opcode: int, payload: bytes = b"", last: bool = True) -> bytes:
    """A frame of WebSocket with a mask of zeros, which changes nothing."""
    length = len(payload)
    if length < 126:
        size = bytes([0x80 | length])
    else:
        size = struct.pack(">BH", 0x80 | 126, length) if length < 1 << 16 else struct.pack(">BQ", 0x80 | 127, length)
    return bytes([opcode | (0x80 if last else 0)]) + size + bytes(4) + payload
