"""Setup of a worker process. It is imported before the function of the worker."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that a terminal or a service manager also sends to the parent."""


def set_up(*fds: int) -> None:
    """Ignore the signals of the group, and make descriptors non-inheritable."""
    for number in GROUP_SIGNALS:
        signal.signal(number, ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    for fd in fds:
        os.set_inheritable(fd, False)


def ignore(*_: object) -> None:
    """Ignore a signal. Unlike SIG_IGN, a handler is not inherited by programs of the function."""


def flush_prints() -> None:
    """Flush stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        # The stream may be any object of the function, and its error has no receiver.
        with contextlib.suppress(Exception):
            stream.flush()
