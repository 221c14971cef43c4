"""Links: whoever keeps the interpreter to himself does not hold up the thread of the links."""

from __future__ import annotations

import ctypes
import select
import struct
import subprocess
import sys

import tidewire as tw

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


def test_what_a_hub_logs_does_not_wait_for_the_interpreter() -> None:
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
