"""Malformed input of a hub: bytes that break the rules, each with the text that names the rule."""

from __future__ import annotations

import struct

from link_frames import (
    ANSWER,
    CALL,
    CHUNK,
    CREDIT,
    END,
    GOODBYE,
    HELLO,
    ID,
    ITEM,
    MORE,
    NODE,
    NORMAL,
    OK,
    PING,
    PUBLISH,
    REPLY,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WELCOME,
    WINDOW,
    called,
    fields,
    frame,
    hello,
    subscribed,
)

MIB = 1 << 20
HELD = frame(CALL, called(b"svc.workshop.hold"), b"\x90", NORMAL, ID)
OPEN = frame(CALL, called(b"svc.workshop.echo"), struct.pack("<Q", 100), NORMAL | MORE, ID)

# First bytes of a connection, and the text that names the rule.
FIRST: dict[str, tuple[bytes, str]] = {
    "a wrong magic": (hello(1, 1, b"tidewirf"), "not a HELLO"),
    "a request of HTTP": (b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n", "link_hello_bytes=16384"),
    "a greeting of TLS": (bytes.fromhex("16030102000100") + bytes(512), "link_hello_bytes|kind=|too short|not a HELLO"),
    "the greatest length": (b"\xff\xff\xff\xff" + bytes(12), "link_hello_bytes=16384"),
    "a length of 0": (bytes(16), "length=0 is too short"),
    "random bytes": (bytes(range(1, 200)), "link_hello_bytes"),
    "a call before HELLO": (frame(CALL, called(), b"\x90", id=ID), "not a HELLO"),
    "a ping before HELLO": (frame(PING, id=1, flags=0), "not a HELLO"),
    "HELLO without a name": (frame(HELLO, b"tidewire" + struct.pack("<HH", 1, 1), fields(), 0), "name"),
    "HELLO with a name that is too long": (hello(name="x" * 256), "name: 256 bytes"),
    "HELLO with more fields than it says": (
        frame(HELLO, b"tidewire" + struct.pack("<HH", 1, 1), fields(1, name="a", token="b"), 0),
        "follow the end",
    ),
    "HELLO with fewer fields than it says": (
        frame(HELLO, b"tidewire" + struct.pack("<HH", 1, 1), fields(3, name="a", token="b"), 0),
        "ends within",
    ),
    "HELLO of versions to come": (hello(7, 9), "version 1, the node 7 to 9"),
    "HELLO of versions that are turned round": (hello(2, 1), "oldest"),
    "HELLO with a token where none is a secret, and a wrong flag": (hello()[:5] + b"\xc0" + hello()[6:], "clear bit 7"),
}

# Bytes after the greeting.
LATER: dict[str, tuple[bytes, str]] = {
    "HELLO twice": (hello(), "HELLO"),
    "WELCOME to a hub": (frame(WELCOME, struct.pack("<H", 1), fields()), "WELCOME"),
    "NODE to a hub": (frame(NODE, struct.pack("<I", 3), fields(name="x")), "NODE"),
    "OK to a hub": (frame(OK, flags=NORMAL | ANSWER, id=ID), "OK"),
    "an unknown kind": (frame(99), "kind=99"),
    "kind 0": (frame(0), "kind=0"),
    "a flag that must be 0": (frame(PING, flags=0x80, id=1), "clear bit 7"),
    "garbage after WELCOME": (bytes(range(7, 250)), "link_frame_bytes"),
    "a frame that is too long": (struct.pack("<IBBHQ", 12 + MIB, PUBLISH, NORMAL, 15, 0), "link_frame_bytes"),
    "a frame that is too short": (struct.pack("<IBBHQ", 3, PING, 0, 0, 1), "length=3 is too short"),
    "a head that is longer than its frame": (struct.pack("<IBBHQ", 12, CALL, NORMAL, 40, ID), "length=12|ends|short"),
    "a call whose head is cut": (frame(CALL, called()[:20], id=ID), "CALL: ends within"),
    "a call with an empty subject": (frame(CALL, called(b""), id=ID), "subject"),
    "a call on a pattern": (frame(CALL, called(b"svc.*.x"), id=ID), "subject"),
    "a subject that is not UTF-8": (frame(CALL, called(b"svc.\xff\xfe"), id=ID), "UTF-8"),
    "a subject that is too long": (frame(CALL, called(b"a" * 256), id=ID), "256 bytes, more than subject_bytes=255"),
    "a subject with too many tokens": (
        frame(CALL, called(b".".join([b"a"] * 65)), id=ID),
        "65 tokens, more than subject_tokens=32",
    ),
    "a choice that there is not": (frame(CALL, called(choice=3), id=ID), "choice=3"),
    "too many fields": (frame(CALL, called(extra=fields(**{f"n{n}": "" for n in range(65)})), id=ID), "link_fields=64"),
    "a head that is too long": (frame(CALL, called(extra=fields(a="x" * 30_000)), id=ID), "link_head_bytes=16384"),
    "an item after the end": (HELD + frame(END, id=ID) + frame(ITEM, payload=b"\xc0", id=ID), "credit"),
    "a call with the id 0": (frame(CALL, called(), b"\x90", id=0), "generation is 0"),
    "a slot beyond the limit": (frame(CALL, called(), b"\x90", id=ID + 65_536), "slot|link_in_flight|in-flight"),
    "a slot in use": (HELD + frame(CALL, called(), b"\x90", id=2 * ID), "slot"),
    "an id in use": (HELD + HELD, "id"),
    "a length of the whole that is cut": (frame(CALL, called(), b"abc", NORMAL | MORE, ID), "length"),
    "a chunk that is longer than was stated": (
        OPEN + frame(CHUNK, payload=bytes(101), flags=NORMAL, id=ID),
        "longer than was stated",
    ),
    "a last chunk that comes too early": (
        OPEN + frame(CHUNK, payload=bytes(99), flags=NORMAL, id=ID),
        "shorter than was stated",
    ),
    "an empty chunk in the middle": (OPEN + frame(CHUNK, flags=NORMAL | MORE, id=ID), "empty"),
    "an item before its last chunk": (OPEN + frame(ITEM, payload=b"\x01", flags=NORMAL, id=ID), "not complete"),
    "more than a window": (
        frame(CALL, called(b"svc.workshop.hold"), struct.pack("<Q", 100 * MIB), NORMAL | MORE, ID)
        + frame(CHUNK, payload=bytes(MIB // 2), flags=NORMAL | MORE, id=ID) * 200,
        "link_window_bytes",
    ),
    "a call of the side that answers": (frame(CALL, called(), b"\x90", NORMAL | ANSWER, ID), "CALL|ANSWER"),
    "a reply of the side that asks": (frame(REPLY, payload=b"\xc0", flags=NORMAL, id=ID), "REPLY|ANSWER"),
    "a pattern that is none": (frame(SUBSCRIBE, subscribed(b"a.>.b"), id=ID), "pattern|subject|>"),
    "a queue name that is cut": (frame(SUBSCRIBE, b"\x09abc", id=ID), "SUBSCRIBE: ends within"),
    "a goodbye with a payload": (frame(GOODBYE, payload=b"x"), "GOODBYE"),
    "a credit of 64 bits": (frame(CREDIT, struct.pack("<Q", 1), id=ID), "CREDIT"),
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
