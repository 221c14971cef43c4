"""Supervisor's side of one worker process: its start, its run, its messages, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tidewire
from tidewire._campaigns.status_page import StatusPage
from tidewire._campaigns.worker import OF_GROUP

_PACKAGE = str(Path(tidewire.__file__).resolve().parents[1])
_READ_BYTES = 65_536
_SAID_BYTES_MAX = 1 << 20


class WorkerProcess:
    """One worker process of one campaign."""

    def __init__(self, orders: dict[str, Any], timeout_us: int | None) -> None:
        """Start one."""
        self.campaign: int = orders["campaign"]
        self.timeout_us = timeout_us
        self.started = time.monotonic()
        self.stop_at: float | None = None
        self.board = StatusPage()
        self._said = b""
        self._socket, theirs = socket.socketpair()
        orders = {**orders, "started": self.started}
        try:
            self._process = _spawn(theirs.fileno(), self.board.fd)
        except BaseException:
            self._socket.close()
            self.board.close()
            raise
        finally:
            theirs.close()
        self._socket.setblocking(False)
        self._pidfd = _pidfd(self._process.pid)
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(orders).encode() + b"\n")

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def fileno(self) -> int:
        """Descriptor that is readable once the worker has ended: its process, or its connection
        where processes can't be waited for.
        """
        return self._pidfd if self._pidfd is not None else self._socket.fileno()

    def ended(self) -> bool:
        """Tell whether the process is gone, and reap it then."""
        return self._process.poll() is not None

    def left_us(self) -> int | None:
        """Return how many microseconds are left for the run that it is in; None if it is in none,
        or there is no limit.
        """
        run, since = self.board.run, self.board.since_us
        if run is None or self.timeout_us is None:
            return None
        return since + self.timeout_us - time.monotonic_ns() // 1_000

    def kill_overtime(self) -> bool:
        """Kill it if it is in a run that is over its time limit. It stands still while that is
        looked at.
        """
        left = self.left_us()
        if left is None or left > 0 or self.ended():
            return False
        self._signal(signal.SIGSTOP)
        left = self.left_us()
        if left is None or left > 0:
            self._signal(signal.SIGCONT)
            return False
        self._process.kill()
        self._process.wait()
        return True

    def stop(self, within: float) -> None:
        """Ask it to end after the run that it is in. It is killed if that takes longer than so many
        seconds, and at once if it has not joined the campaign.
        """
        if self.stop_at is None:
            self.stop_at = time.monotonic() + within
            if self.board.worker:
                self._signal(signal.SIGTERM)
            else:
                self._process.kill()

    def kill_late(self, now: float) -> None:
        """Kill it if it was asked to end, and has not in time."""
        if self.stop_at is not None and now >= self.stop_at:
            self._process.kill()

    def how(self) -> str:
        """Return how it has ended."""
        code = self._process.returncode
        if code is None or code >= 0:
            return f"exit code {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"

    @property
    def code(self) -> int | None:
        """Its exit code; None while it is there."""
        return self._process.returncode

    def said(self) -> dict[str, Any]:
        """Return its final message; empty if it could not send one."""
        with contextlib.suppress(OSError):
            while len(self._said) < _SAID_BYTES_MAX and (piece := self._socket.recv(_READ_BYTES)):
                self._said += piece
        line = self._said.partition(b"\n")[0]
        try:
            said = json.loads(line) if line else {}
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}

    def close(self) -> None:
        """Kill it if it is there, and give everything back."""
        self._process.kill()
        self._process.wait()
        self._socket.close()
        self.board.close()
        if self._pidfd is not None:
            os.close(self._pidfd)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


def _spawn(socket_fd: int, board_fd: int) -> subprocess.Popen[bytes]:
    start = f"import sys; sys.path.insert(0, {_PACKAGE!r}); from tidewire._campaigns.worker import main"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # The worker inherits this, so that signals of the group can't end it before it has its
    # handlers.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_GROUP)
    try:
        return subprocess.Popen(
            [sys.executable, *flags, "-c", f"{start}; main({socket_fd}, {board_fd}, {os.getpid()})"],
            pass_fds=[socket_fd, board_fd],
            stdin=subprocess.DEVNULL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
