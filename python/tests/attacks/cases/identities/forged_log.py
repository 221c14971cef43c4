"""Strangers say in their greetings and errors what would forge lines of the log, or move the cursor
of whoever reads it, again and again.
"""

from __future__ import annotations

import contextlib
import re
import struct

from link_frames import ERROR, frame, hello

from attacks.target import Target

ITEM = 11
MEMORY_MIB = 32
LINES = 1_000
"""At one go; the rest is counted, and said in a line each second."""
LINES_A_SECOND = 20
_FORGED = "bank\n2026-01-01 INFO forged: all is well\r\x1b[2J\x1b[1;1H\u202egnol"


def attack(target: Target) -> None:
    long = _FORGED * 400
    while True:
        with contextlib.suppress(OSError):
            for said in (hello(name=_FORGED), hello(name=long[:200], token=_FORGED), hello(9, 9)):
                link = target.raw()
                link.send(said)
                link.close()
            for text in (_FORGED, long):
                link = target.joined()
                link.send(frame(ERROR, struct.pack("<H", 7), text.encode(), flags=0))
                link.until_end()
                link.close()


def logged(lines: list[str], seconds: float) -> list[str]:
    """Look at what the hub has logged."""
    problems = []
    if not any("forged" in line for line in lines):
        problems.append("nothing of it was logged")
    for line in lines:
        if line.startswith("2026-01-01") or re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", line):
            problems.append(f"the log has {line[:80]!r}")
        if len(line) > 1_100:
            problems.append(f"a line of the log has {len(line)} characters")
    most = LINES + (LINES_A_SECOND + 1) * (seconds + 2)
    return problems[:3] if len(lines) <= most else [*problems[:3], f"{len(lines)} lines were logged"]
