"""Parent's side of a worker process: its start, its connection, its status page, and its end."""

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
    """A fresh interpreter, which runs ``main`` of a module.

    ``main`` gets the descriptors of the connection, of the status page, and any further ones.
    """

    def __init__(self, module: str, *fds: int) -> None:
        """Start it.

        Raises:
            OSError: if the system has no more descriptors, memory or processes.
        """
        self.page = StatusPage()
        self.socket, theirs = socket.socketpair()
        try:
            self._process = _spawn(module, theirs.fileno(), self.page.fd, *fds)
        except BaseException:
            self.socket.close()
            self.page.close()
            raise
        finally:
            theirs.close()
        self.socket.setblocking(False)
        self.pidfd = _pidfd(self.pid)
        _children.add(self)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.returncode

    def ended(self) -> bool:
        """Tell whether the process is gone, and reap it then."""
        return self._process.poll() is not None

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def close(self) -> str:
        """Kill it if it still runs, give everything back, and return how it ended."""
        self._process.kill()
        self._process.wait()
        self.socket.close()
        self.page.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
        return self.how()

    def how(self) -> str:
        """Return how it has ended."""
        code = self.code
        if code is None or code >= 0:
            return f"exit code {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"


_children: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


def _close_copies() -> None:
    """Close the connections in a forked child: workers see the end of the parent by theirs."""
    for child in list(_children):
        child.socket.close()


in_child(_close_copies)


def _spawn(module: str, *fds: int) -> subprocess.Popen[bytes]:
    code = f"import sys; sys.path.insert(0, {_PACKAGE!r}); from {module} import main; main{fds}"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # The worker inherits this, so that signals of the group can't end it before it has its
    # handlers.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        return subprocess.Popen([sys.executable, *flags, "-c", code], pass_fds=fds, stdin=subprocess.DEVNULL)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        # On other systems the end of the connection shows the same, unless a child of the worker
        # keeps it open.
        return None
