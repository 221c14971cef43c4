"""Frames that are written by hand, and a connection that says whatever a story wants."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct

from link_processes import PATIENCE_S

HELLO, WELCOME, ERROR, GOODBYE, PING, PONG, NODE, SUBSCRIBE, UNSUBSCRIBE, OK = range(1, 11)
PUBLISH, CALL, REPLY, FAIL, CANCEL, ITEM, END, CREDIT, WINDOW, CHUNK, ALIVE = range(11, 22)
NORMAL, MORE, ANSWER, COMPRESSED = 2, 4, 8, 16
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
    """A connection that says whatever the story wants."""

    def __init__(self, url: str) -> None:
        host, port = re.match(r"tide://(.*):(\d+)", url).groups()  # type: ignore[union-attr]
        self.flags = 0  # of the frame that was received last
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    @classmethod
    def joined(cls, url: str, **texts: str) -> Raw:
        raw = cls(url)
        raw.send(hello(**texts))
        kind, *_ = raw.receive() or (None,)
        assert kind == WELCOME
        return raw

    def send(self, data: bytes) -> None:
        # The hub may have closed the link after the first part.
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

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
        """Whether the hub still answers."""
        self.send(frame(PING, id=77, flags=0))
        while (found := self.receive()) is not None:
            if found[:2] == (PONG, 77):
                return True
        return False

    def close(self) -> None:
        self.socket.close()

    def _read(self, count: int) -> bytes:
        found = b""
        with contextlib.suppress(ConnectionError):
            while len(found) < count:
                part = self.socket.recv(count - len(found))
                if not part:
                    break
                found += part
        return found
