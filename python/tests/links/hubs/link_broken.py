"""Malformed input of a hub: bytes that break the rules, each with the text that names the rule."""

from __future__ import annotations

import struct

from link_frames import (
    ANSWER,
    CALL,
    CHUNK,
    CREDIT,
    END,
    HELLO,
    ID,
    ITEM,
    MORE,
    NORMAL,
    PING,
    PUBLISH,
    REPLY,
    UNSUBSCRIBE,
    WINDOW,
    called,
    fields,
    frame,
    hello,
)

MIB = 1 << 20
HELD = frame(CALL, called(b"svc.workshop.hold"), b"\x90", NORMAL, ID)

# First bytes of a connection, and the text that names the rule.
FIRST: dict[str, tuple[bytes, str]] = {
    "a wrong magic": (hello(1, 1, b"tidewirf"), "not a HELLO"),
    "a request of HTTP": (b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n", "link_hello_bytes=16384"),
    "a greeting of TLS": (bytes.fromhex("16030102000100") + bytes(512), "link_hello_bytes|kind=|too short|not a HELLO"),
    "the greatest length": (b"\xff\xff\xff\xff" + bytes(12), "link_hello_bytes=16384"),
    "a call before HELLO": (frame(CALL, called(), b"\x90", id=ID), "not a HELLO"),
    "HELLO without a name": (frame(HELLO, b"tidewire" + struct.pack("<HH", 1, 1), fields(), 0), "name"),
    "HELLO with a name that is too long": (hello(name="x" * 256), "name: 256 bytes"),
    "HELLO of versions to come": (hello(7, 9), "version 1, the node 7 to 9"),
    "HELLO with a token where none is a secret, and a wrong flag": (hello()[:5] + b"\xc0" + hello()[6:], "clear bit 7"),
}

# Bytes after the greeting.
LATER: dict[str, tuple[bytes, str]] = {
    "HELLO twice": (hello(), "HELLO"),
    "an unknown kind": (frame(99), "kind=99"),
    "garbage after WELCOME": (bytes(range(7, 250)), "link_frame_bytes"),
    "a frame that is too long": (struct.pack("<IBBHQ", 12 + MIB, PUBLISH, NORMAL, 15, 0), "link_frame_bytes"),
    "a subject that is not UTF-8": (frame(CALL, called(b"svc.\xff\xfe"), id=ID), "UTF-8"),
    "an item after the end": (HELD + frame(END, id=ID) + frame(ITEM, payload=b"\xc0", id=ID), "credit"),
    "a slot beyond the limit": (frame(CALL, called(), b"\x90", id=ID + 65_536), "slot|link_in_flight|in-flight"),
    "a slot in use": (HELD + frame(CALL, called(), b"\x90", id=2 * ID), "slot"),
    "more than a window": (
        frame(CALL, called(b"svc.workshop.hold"), struct.pack("<Q", 100 * MIB), NORMAL | MORE, ID)
        + frame(CHUNK, payload=bytes(MIB // 2), flags=NORMAL | MORE, id=ID) * 200,
        "link_window_bytes",
    ),
    "a wrong frame behind a right one": (frame(PING, id=3, flags=0) + frame(88), "kind=88"),
}

# Wrong frames that harm nobody: the hub answers or skips them, and the link goes on.
HARMLESS: dict[str, bytes] = {
    "a chunk without a start": frame(CHUNK, payload=b"abc", id=ID),
    "an item of a call that there is not": frame(ITEM, payload=b"\xc0", id=ID),
    "an answer that nobody asked for": frame(REPLY, payload=b"\xc0", flags=NORMAL | ANSWER, id=ID),
    "the end of a subscription that there is not": frame(UNSUBSCRIBE, id=ID),
    "credit for a call that there is not": frame(CREDIT, struct.pack("<I", 4_000_000_000), id=ID),
    "a window for a call that there is not": frame(
        WINDOW, struct.pack("<I", 4_000_000_000), flags=NORMAL | ANSWER, id=ID
    ),
    "a value that is none": frame(CALL, called(), b"\xc1\xc1\xc1", id=ID),
    "a call of a service that there is not": frame(CALL, called(b"svc.none.x"), b"\x90", id=ID),
    "a payload that is larger than it may be": frame(CALL, called(), struct.pack("<Q", 1 << 62), NORMAL | MORE, ID),
    "a call on what is the hub's": frame(CALL, called(b"$hub.nothing"), b"\x90", id=ID),
}
