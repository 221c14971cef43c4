"""Links: whoever keeps the interpreter to himself does not hold up the thread of the links."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import tidewire as tw

HELD_US = 1_000_000

STRANGER = """
import select, socket, sys, time
port, longest = int(sys.argv[1]), 0.0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    since = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\\r\\nHost: here\\r\\n\\r\\n")
        while stranger.recv(65536):
            pass
    longest = max(longest, time.monotonic() - since)
print(longest, flush=True)
"""
"""Connects again and again, says what is no frame, and waits to be turned away."""


def test_what_a_hub_logs_does_not_wait_for_the_interpreter() -> None:
    with tw.Node(name="hub") as hub:
        port = hub.listen("tide://127.0.0.1:0").url.rsplit(":", 1)[1]
        with subprocess.Popen(
            [sys.executable, "-c", STRANGER, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as stranger:
            assert stranger.stdin is not None and stranger.stdout is not None
            assert stranger.stdout.readline() == "ready\n"
            # As an extension does that computes without letting go of the interpreter.
            ctypes.PyDLL(None).usleep(HELD_US)
            stranger.stdin.write("enough\n")
            stranger.stdin.flush()
            longest_s = float(stranger.stdout.readline())
    assert longest_s < HELD_US / 1e6 / 2, "the links stood still"
