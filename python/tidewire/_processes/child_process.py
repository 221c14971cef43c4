"""Parent side of a worker process: its start, connection, status page and end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import weakref
from pathlib import Path

import tidewire
from tidewire._processes.child_setup import GROUP_SIGNALS
from tidewire._processes.status_page import StatusPage
from tidewire._runtime.process_state import in_child

_PACKAGE = str(Path(tidewire.__file__).resolve().parents[1])


class ChildProcess:
    """Process with a new interpreter, which runs ``main`` of a module.

    The arguments of ``main`` are the descriptors of the connection and of the status page, and
    then ``fds``.
    """

    def __init__(self, module: str, *fds: int) -> None:
        """Start the process.

        Raises:
            OSError: if the system has no descriptors, memory or processes left.
        """
        self.page = StatusPage()
        self.socket, child_socket = socket.socketpair()
        try:
            self._process = _spawn(module, child_socket.fileno(), self.page.fd, *fds)
        except BaseException:
            self.socket.close()
            self.page.close()
            raise
        finally:
            child_socket.close()
        self.socket.setblocking(False)
        self.pidfd = _pidfd(self.pid)
        _children.add(self)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Exit code; None while the process runs."""
        return self._process.returncode

    def ended(self) -> bool:
        """Return True if the process has ended, and reap it."""
        return self._process.poll() is not None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def close(self) -> str:
        """Kill the process if it still runs, release its resources, and describe its end."""
        self._process.kill()
        self._process.wait()
        self.socket.close()
        self.page.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
        return self.how()

    def how(self) -> str:
        """Describe the end of the process: its exit code or signal."""
        code = self.code
        if code is None or code >= 0:
            return f"exit code {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"


_children: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


def _close_copies() -> None:
    """Close the connections in a forked child, as workers detect the end of the parent by them."""
    for child in list(_children):
        child.socket.close()


in_child(_close_copies)


def _spawn(module: str, *fds: int) -> subprocess.Popen[bytes]:
    code = f"import sys; sys.path.insert(0, {_PACKAGE!r}); from {module} import main; main{fds}"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # The worker inherits the mask, so that signals of the group can't end it before it has
    # installed its handlers.
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        return subprocess.Popen([sys.executable, *flags, "-c", code], pass_fds=fds, stdin=subprocess.DEVNULL)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        # Other systems detect the end by the connection, unless a child of the worker keeps it
        # open.
        return None
