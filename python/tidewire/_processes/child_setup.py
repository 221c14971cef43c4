"""Worker's side of the start and of its output. A worker imports it before its function."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that a terminal or a service manager also sends to the parent."""


def set_up(*fds: int) -> None:
    """Ignore the signals of the group, and keep descriptors from programs that the worker
    starts.
    """
    for number in GROUP_SIGNALS:
        signal.signal(number, ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    for fd in fds:
        os.set_inheritable(fd, False)


def ignore(*_: object) -> None:
    """A handler rather than SIG_IGN: programs that the function starts shall not inherit it."""


def flush_prints() -> None:
    """Flush what the function has printed."""
    for stream in (sys.stdout, sys.stderr):
        # The stream may be any object of the function, and nobody can receive its error.
        with contextlib.suppress(Exception):
            stream.flush()
