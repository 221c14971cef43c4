"""State of this process: the child of a fork gets free locks and fully loaded modules.

A child has one thread of its parent, and locks of the other threads stay locked. This module is
loaded first.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()


def in_child(call: Callable[[], Any]) -> None:
    """Call a function in each forked child of this process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def lock() -> _thread.LockType:
    """Return a lock that is free in the child of a fork."""
    new_lock = _thread.allocate_lock()
    _locks.add(new_lock)
    return new_lock


def reentrant_lock() -> Any:
    """Return a reentrant one: a finalizer may acquire it on the thread that holds it."""
    new_lock = _thread.RLock()
    _locks.add(new_lock)
    return new_lock


def _free_locks() -> None:
    for one in _locks:
        one._at_fork_reinit()


def leave(error: BaseException | None) -> NoReturn:
    """End a child that a handler forked, after the handler: its other threads are in the parent."""
    from tidewire._processes.child_setup import flush_prints

    code: Any = 0
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    flush_prints()
    os._exit((code or 0) & 0xFF)


def _forget_half_loaded() -> None:
    """Release the locks of modules whose loading threads are not in this process, and forget their
    partly loaded modules. An import would wait for such a lock forever.
    """
    # Internals of Python: without them nothing changes.
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", None)
    if not isinstance(locks, dict):
        return
    for name, reference in list(locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner is None or owner == _thread.get_ident():
            continue
        del locks[name]
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            del sys.modules[name]


in_child(_free_locks)
in_child(_forget_half_loaded)
