"""``tidewire top`` in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from top_support import ORDERS, PACKAGE, PATIENCE_S, program

# In a terminal


class Terminal:
    """``tidewire top`` in a terminal of its own."""

    def __init__(self) -> None:
        self.keyboard, self.inside = pty.openpty()
        fcntl.ioctl(self.inside, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.inside)
        self.shown = b""
        self.top = subprocess.Popen(
            [sys.executable, "-m", "tidewire", "top", "--interval", "0.1"],
            stdin=self.inside,
            stdout=self.inside,
            stderr=self.inside,
            cwd=PACKAGE,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )

    def wait_for(self, text: bytes) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < end_s, self.shown
            if select.select([self.keyboard], [], [], 1.0)[0]:
                self.shown += os.read(self.keyboard, 65_536)

    def end(self) -> int:
        """Wait for the end. The output is read meanwhile, since top waits for room to show it."""
        ended = os.pidfd_open(self.top.pid)
        try:
            while ended not in (ready := select.select([self.keyboard, ended], [], [], PATIENCE_S)[0]):
                assert ready, self.shown
                self.shown += os.read(self.keyboard, 65_536)
        finally:
            os.close(ended)
        return self.top.wait()

    def close(self) -> None:
        self.top.kill()
        self.top.wait()
        os.close(self.keyboard)
        os.close(self.inside)


@pytest.fixture
def terminal(place: Path) -> Iterator[Terminal]:
    """A terminal that shows the node of the program that is given."""
    with program(ORDERS) as orders:
        terminal = Terminal()
        terminal.orders = orders  # type: ignore[attr-defined]
        try:
            terminal.wait_for(b"q ends")
            terminal.wait_for(b"pricing")
            yield terminal
        finally:
            terminal.close()


def test_q_ends_it_and_the_terminal_is_as_before(terminal: Terminal) -> None:
    os.write(terminal.keyboard, b"q")
    assert terminal.end() == 0
    assert termios.tcgetattr(terminal.inside) == terminal.before
    terminal.wait_for(b"\x1b[?1049l")


def test_an_interrupt_ends_it_and_the_terminal_is_as_before(terminal: Terminal) -> None:
    terminal.top.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert termios.tcgetattr(terminal.inside) == terminal.before


def test_a_node_that_goes_in_the_middle_is_told_of(terminal: Terminal) -> None:
    terminal.orders.kill()  # type: ignore[attr-defined]
    assert terminal.end() == 1
    terminal.wait_for(b"is gone: the node has stopped, or its process has ended")
    assert termios.tcgetattr(terminal.inside) == terminal.before
