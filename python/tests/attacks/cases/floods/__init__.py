"""Floods: a client sends the same again and again, as fast as it can."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import SimpleNamespace

from link_frames import (
    CALL,
    CANCEL,
    CREDIT,
    PING,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WINDOW,
    called,
    frame,
    published,
    subscribed,
)

from attacks.target import Target, flood, together, web

LINKS, PIECES = 16, 512
CALLED = frame(CALL, called(b"raw.nobody", deadline_ms=0), b"\xc0", id=1 << 32)
SUBSCRIBED = frame(SUBSCRIBE, subscribed(b"raw.a.*.b"), id=1 << 32) + frame(UNSUBSCRIBE, id=1 << 32)
EMPTY = frame(PUBLISH, published(b"raw.none"))
OF_NONE = (1 << 16).to_bytes(4, "little")

FLOODS: dict[str, SimpleNamespace] = {}
"""Attacks by their names, in the form of the modules that hold one each."""


def _add(name: str, text: str, attack: Callable[[Target], None], memory_mib: float = 32) -> None:
    module = f"attacks.cases.floods.{name}"
    FLOODS[name] = SimpleNamespace(__name__=module, __doc__=text, ITEM=1, MEMORY_MIB=memory_mib, attack=attack)


def _with_frames(frames: bytes, scheme: str = "tide") -> Callable[[Target], None]:
    return lambda target: flood(target.joined(scheme=scheme).socket, frames)


def _with_messages(message: bytes, first: bytes = b"") -> Callable[[Target], None]:
    def attack(target: Target) -> None:
        """Connect again as soon as the hub has had enough."""
        while True:
            one = target.http()
            one.sendall(first)
            flood(one, message)

    return attack


def _many(target: Target) -> None:
    links = [target.joined() for _ in range(LINKS)]
    together(threading.Thread(target=flood, args=(link.socket, frame(PING, id=9, flags=0))) for link in links)


def _over_tls(target: Target) -> None:
    """Flood one link, where there is a certificate. Nothing comes that would have to be read."""
    if not target.tls:
        return
    link = target.joined(scheme="tls")
    with contextlib.suppress(OSError):
        while True:
            for _ in range(PIECES):
                link.socket.sendall(EMPTY)
            link.socket.sendall(EMPTY * PIECES)


_add("call_flood", "A node calls what nobody answers, as fast as it can.", _with_frames(CALLED))
_add("cancel_flood", "A node cancels calls that nobody has made.", _with_frames(frame(CANCEL, id=9 << 32)))
_add("credit_flood", "It gives credit to exchanges that nobody has.", _with_frames(frame(CREDIT, OF_NONE, id=9 << 32)))
_add("window_flood", "It asks for windows of exchanges of nobody.", _with_frames(frame(WINDOW, OF_NONE, id=9 << 32)))
_add("ping_flood", "A node sends PING as fast as it can.", _with_frames(frame(PING, id=9, flags=0)))
_add("many_floods", "Sixteen links of one client send PING as fast as they can.", _many, 64)
_add("subscribe_flood", "A node subscribes and unsubscribes as fast as it can.", _with_frames(SUBSCRIBED))
_add(
    "publish_flood",
    "A node publishes on ever new subjects that nobody has subscribed to.",
    lambda target: _with_frames(
        b"".join(frame(PUBLISH, published(b"raw.%d" % number), b"\xc0") for number in range(20_000))
    )(target),
)
_add("tls_flood", "A node floods TLS with empty messages, in the least pieces that TLS has.", _over_tls)
_add("unix_flood", "A node floods a Unix socket with calls to nobody.", _with_frames(CALLED + EMPTY, "unix"))
_add("web_empty_flood", "A client without a token sends empty messages of WebSocket.", _with_messages(web(2)), 8)
_add(
    "web_fragment_flood",
    "A client without a token sends empty fragments of one message of WebSocket.",
    _with_messages(web(0, last=False), web(2, last=False)),
    8,
)
_add("web_ping_flood", "A client without a token sends pings of WebSocket.", _with_messages(web(9)), 8)
