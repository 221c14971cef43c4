"""Floods of allowed actions without end: the hub slows the sender down, and logs it briefly."""

from __future__ import annotations

import ctypes
import logging
import queue
import re
import select
import struct
import subprocess
import sys
import threading

import pytest
import tidewire as tw
from attacks.target import description
from link_frames import FAIL, OK, SUBSCRIBE, UNSUBSCRIBE, Raw, fields, frame, subscribed
from link_processes import PATIENCE_S


class Lines(logging.Handler):
    """Keeps what is logged, once it may go on."""

    def __init__(self, goes_on: threading.Event) -> None:
        super().__init__()
        self._goes_on = goes_on
        self.found: queue.Queue[str | None] = queue.Queue(100_000)

    def emit(self, record: logging.LogRecord) -> None:
        # Log records of the story itself must not wait for it.
        if threading.current_thread() is not threading.main_thread():
            self._goes_on.wait()
        self.found.put(record.getMessage())


def counted(lines: queue.Queue[str | None], word: str, most: int) -> tuple[int, list[int]]:
    """Read lines until so many had the word or are summed up, and return how many had it, and the
    sums.
    """
    said, summed_up = 0, list[int]()
    while said + sum(summed_up) < most:
        line = lines.get(timeout=PATIENCE_S) or ""
        found = re.search(r"(\d+) more lines .*left out", line)
        summed_up += [int(found[1])] if found else []
        said += word in line
    return said, summed_up


def until_answered(raw: Raw) -> int:
    """Read until a subscription is in force, or refused."""
    while (came := raw.receive()) is not None:
        if came[0] in (OK, FAIL):
            return came[0]
    raise AssertionError("the hub has closed the link")


def test_lines_that_a_blocked_log_drops_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    rounds, goes_on = 2_000, threading.Event()
    lines = Lines(goes_on)
    logger = logging.getLogger("tidewire")
    caplog.set_level(logging.INFO, "tidewire")
    logger.addHandler(lines)
    try:
        with tw.Node(name="hub") as hub:
            raw = Raw.joined(hub.listen("tide://127.0.0.1:0").url)
            says, pattern = fields(**description("fickle", "one")), subscribed(b"svc.fickle.one.*")
            for number in range(1, rounds + 1):
                raw.send(frame(SUBSCRIBE, pattern, says, id=number << 32) + frame(UNSUBSCRIBE, id=number << 32))
                until_answered(raw)
            assert raw.is_alive()
            goes_on.set()
            said, summed_up = counted(lines.found, "fickle", 2 * rounds)
            raw.close()
        assert (said + sum(summed_up), len(summed_up)) == (2 * rounds, 1)
        assert said < rounds * 1.5
    finally:
        goes_on.set()
        logger.removeHandler(lines)


HELD_MS = 30_000

STRANGER = """
import socket, sys
sys.stdin.readline()
for _ in range(200):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\\r\\nHost: here\\r\\n\\r\\n")
        while stranger.recv(65536):
            pass
print("turned away", flush=True)
"""
"""Connects again and again, says what is no frame, and waits to be turned away."""


def test_the_log_of_a_hub_does_not_wait_for_the_interpreter() -> None:
    with tw.Node(name="hub") as hub:
        port = hub.listen("tide://127.0.0.1:0").url.rsplit(":", 1)[1]
        with subprocess.Popen(
            [sys.executable, "-c", STRANGER, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as stranger:
            assert stranger.stdin is not None and stranger.stdout is not None
            waited_for = ctypes.create_string_buffer(struct.pack("ihh", stranger.stdout.fileno(), select.POLLIN, 0))
            stranger.stdin.write("go\n")
            stranger.stdin.flush()
            # As an extension does that computes without letting go of the interpreter.
            assert ctypes.PyDLL(None).poll(waited_for, ctypes.c_ulong(1), HELD_MS) == 1, "the links stood still"
            assert stranger.stdout.readline() == "turned away\n"
