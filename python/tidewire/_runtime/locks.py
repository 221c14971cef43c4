"""Locks of modules. A child process finds them free, whoever holds them in its parent."""

from __future__ import annotations

import threading
from typing import Any

from tidewire._runtime.fork_handlers import in_child


def lock() -> threading.Lock:
    """Return a lock for a module."""
    made: Any = threading.Lock()
    in_child(made._at_fork_reinit)
    return made  # type: ignore[no-any-return]


def reentrant_lock() -> Any:
    """Return a lock for a module that a thread may take again: the collector may call what needs it
    while it is held.
    """
    made: Any = threading.RLock()
    in_child(made._at_fork_reinit)
    return made
