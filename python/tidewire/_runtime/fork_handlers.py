"""Fork handlers: a child has one thread of its parent's, and locks that others held stay taken."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from tidewire._binding import after_fork, after_fork_in_parent, before_fork
from tidewire._processes.child_setup import flush_prints


def in_child(call: Callable[[], Any]) -> None:
    """Call something in each child that this process forks, after this module's own part."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def leave(error: BaseException | None) -> NoReturn:
    """End a child that a handler forked, once the handler is through: the threads that would go on
    are the parent's.
    """
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=before_fork, after_in_parent=after_fork_in_parent, after_in_child=after_fork)
