"""The supervisor's side of a spare worker: its start, the workers that it forks, its end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import Any

_REPLY_S = 2.0
"""A spare that takes longer to answer is given up."""
_REPLY_BYTES_MAX = 4_096


class SpareProcess:
    """A process with the function of one campaign loaded. Needs Linux (pidfd)."""

    def __init__(self, orders: dict[str, Any], spawn: Callable[[int], subprocess.Popen[bytes]]) -> None:
        """Start one.

        Args:
            orders: Those of its workers, as far as they are the same.
            spawn: Starts the process with the file of its channel.
        """
        self.campaign: int = orders["campaign"]
        self.forked = 0
        """Forked workers that have not been reaped."""
        self._ready = False
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = spawn(theirs.fileno())
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        self._channel.settimeout(_REPLY_S)
        with contextlib.suppress(OSError):
            self._channel.send(json.dumps(orders).encode() + b"\n")

    @property
    def gone(self) -> bool:
        """True if the spare has ended, or become a worker."""
        return self._channel.fileno() < 0

    def is_ready(self) -> bool:
        """Tell whether it has loaded the function. Notices that it has ended."""
        if not self._ready and not self.gone and _readable(self._channel.fileno(), 0):
            self._ready = "ready" in self._reply()
            if not self._ready:
                self.close()
        return self._ready and not self.gone

    def worker(self, orders: dict[str, Any], fds: tuple[int, int]) -> subprocess.Popen[bytes] | Forked | None:
        """Return a new worker process with these orders, socket and board; None if it can't give
        one.
        """
        if not self.is_ready():
            return None
        with contextlib.suppress(OSError):
            socket.send_fds(self._channel, [json.dumps({"orders": orders}).encode()], fds)
        pid = self._reply().get("pid")
        if pid is None:
            return None
        if pid == self._process.pid:
            self._channel.close()
            return self._process
        try:
            return Forked(self, pid, os.pidfd_open(pid))
        except OSError:
            # The fork has died, and its spare with it, or no file descriptor is left.
            self.close()
            return None

    def reap(self, pid: int) -> int:
        """Return the exit code of one of its workers, which has ended."""
        self.forked -= 1
        with contextlib.suppress(OSError):
            self._channel.send(json.dumps({"reap": pid}).encode())
        status = self._reply().get("status")
        # Forked workers end with their spare.
        return -signal.SIGKILL if status is None else int(status)

    def close(self) -> None:
        """End it; forked workers end with it."""
        if not self.gone:
            self._channel.close()
            self._process.kill()
            self._process.wait()

    def _reply(self) -> dict[str, Any]:
        """Return its answer; nothing, and it is closed, if it can't answer."""
        if self.gone:
            return {}
        try:
            message = self._channel.recv(_REPLY_BYTES_MAX)
        except OSError:
            message = b""
        if not message:
            self.close()
            return {}
        reply: dict[str, Any] = json.loads(message)
        return reply


class Forked:
    """A worker process that a spare has forked, with what is used of ``subprocess.Popen``."""

    def __init__(self, spare: SpareProcess, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._spare = spare
        self._pidfd = pidfd
        spare.forked += 1

    def poll(self) -> int | None:
        """Return its exit code; None while it is there."""
        if self.returncode is None and _readable(self._pidfd, 0):
            self._reap()
        return self.returncode

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        if self.returncode is None:
            _readable(self._pidfd, None)
            self._reap()
        return self.returncode or 0

    def send_signal(self, number: int) -> None:
        """Send it a signal if it is there."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Kill it if it is there."""
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    def _reap(self) -> None:
        self.returncode = self._spare.reap(self.pid)
        os.close(self._pidfd)


def _readable(fd: int, within_ms: int | None) -> bool:
    """Tell whether there is something to read, or a process has ended. Not by select, which has no
    files above 1,023.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(within_ms))
