"""Frames that are written by hand, and a connection that says whatever a story wants."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import ssl
import struct
from pathlib import Path

from link_processes import PATIENCE_S

HELLO, WELCOME, ERROR, GOODBYE, PING, PONG, NODE, SUBSCRIBE, UNSUBSCRIBE, OK = range(1, 11)
PUBLISH, CALL, REPLY, FAIL, CANCEL, ITEM, END, CREDIT, WINDOW, CHUNK, ALIVE, TAKEN = range(11, 23)
NORMAL, MORE, ANSWER, COMPRESSED, PLACED = 2, 4, 8, 16, 64
ID = 1 << 32


def frame(kind: int, head: bytes = b"", payload: bytes = b"", flags: int = NORMAL, id: int = 0) -> bytes:
    return struct.pack("<IBBHQ", 12 + len(head) + len(payload), kind, flags, len(head), id) + head + payload


def fields(count: int | None = None, /, **texts: str) -> bytes:
    written = b"".join(
        bytes([len(name)]) + name.encode() + struct.pack("<H", len(text.encode())) + text.encode()
        for name, text in texts.items()
    )
    return bytes([len(texts) if count is None else count]) + written


def hello(oldest: int = 1, newest: int = 1, magic: bytes = b"tidewire", /, **texts: str) -> bytes:
    said = {"name": f"raw-{os.urandom(4).hex()}", **texts}
    return frame(HELLO, magic + struct.pack("<HH", oldest, newest), fields(**said), flags=0)


def called(
    subject: bytes = b"svc.workshop.echo", extra: bytes = b"", choice: int = 0, deadline_ms: int = 1_000
) -> bytes:
    return struct.pack("<IQIBIH", 0, 0, deadline_ms, choice, 0, len(subject)) + subject + extra


def published(subject: bytes = b"a", extra: bytes = b"") -> bytes:
    return struct.pack("<IQH", 0, 0, len(subject)) + subject + extra


def subscribed(pattern: bytes = b"raw.*", queue: bytes = b"") -> bytes:
    return bytes([len(queue)]) + queue + pattern


class Raw:
    """A connection that says whatever the story wants, over any of the transports."""

    def __init__(self, url: str, ca: Path | None = None, trusting: bool = False) -> None:
        self.flags = 0  # of the frame that was received last
        scheme, place = url.split("://")
        self.socket: socket.socket = _connected(scheme, place)
        if scheme in ("tide+tls", "wss"):
            context = ssl.create_default_context(cafile=ca)
            context.check_hostname = not trusting
            context.verify_mode = ssl.CERT_NONE if trusting else ssl.CERT_REQUIRED
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self._web = scheme in ("ws", "wss")
        self._read_ahead = b""
        if self._web:
            self._upgrade()

    @classmethod
    def of(cls, connected: socket.socket) -> Raw:
        """Speak frames over a socket that is connected."""
        raw = cls.__new__(cls)
        raw.flags, raw.socket, raw._web = 0, connected, False
        return raw

    @classmethod
    def joined(cls, url: str, ca: Path | None = None, /, **texts: str) -> Raw:
        raw = cls(url, ca)
        raw.send(hello(**texts))
        kind, *_ = raw.receive() or (None,)
        assert kind == WELCOME
        return raw

    def send(self, data: bytes) -> None:
        """Send bytes; over a WebSocket they are one message."""
        # The hub may have closed the link after the first part.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            # A mask of zeros changes nothing.
            self.socket.sendall(struct.pack(">BBQ4x", 0x82, 0xFF, len(data)) + data if self._web else data)

    def receive(self) -> tuple[int, int, bytes, bytes] | None:
        """Give the kind, the id, the head and the payload of the next frame; None at the end."""
        start = self._read(4)
        if len(start) < 4:
            return None
        rest = self._read(struct.unpack("<I", start)[0])
        kind, self.flags, head, exchange = struct.unpack_from("<BBHQ", rest)
        return kind, exchange, rest[12 : 12 + head], rest[12 + head :]

    def until_end(self) -> str | None:
        """Read until the hub has closed the link, and give the text of its ERROR."""
        told = None
        while (found := self.receive()) is not None:
            kind, _, _, payload = found
            told = payload.decode() if kind == ERROR else told
        return told

    def is_alive(self) -> bool:
        self.send(frame(PING, id=77, flags=0))
        while (found := self.receive()) is not None:
            if found[:2] == (PONG, 77):
                return True
        return False

    def close(self) -> None:
        self.socket.close()

    def _upgrade(self) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            b"GET / HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: tidewire.v1\r\nSec-WebSocket-Key: " + key.encode() + b"\r\n\r\n"
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._receive(1)
        assert head.startswith(b"HTTP/1.1 101"), head

    def _read(self, count: int) -> bytes:
        if not self._web:
            return self._receive(count)
        while len(self._read_ahead) < count:
            start = self._receive(2)
            # Anything but a message of bytes, such as the end of the WebSocket, is the end.
            if len(start) < 2 or start[0] != 0x82:
                return b""
            longer = {126: ">H", 127: ">Q"}.get(start[1])
            length = struct.unpack(longer, self._receive(struct.calcsize(longer)))[0] if longer else start[1]
            self._read_ahead += self._receive(length)
        found, self._read_ahead = self._read_ahead[:count], self._read_ahead[count:]
        return found

    def _receive(self, count: int) -> bytes:
        found = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while len(found) < count:
                part = self.socket.recv(count - len(found))
                if not part:
                    break
                found += part
        return found


def _connected(scheme: str, place: str) -> socket.socket:
    if scheme == "tide+unix":
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(PATIENCE_S)
        connected.connect(place)
        return connected
    host, port = place.rstrip("/").rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)
