"""The pools of this process that have started: they end with it, and a forked child leaves them to its parent."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidewire.pools.pool import Pool

_EXIT_TIMEOUT_S = 1.0

live: weakref.WeakSet[Pool] = weakref.WeakSet()


def _stop_live() -> None:
    for pool in list(live):
        if pool._core.ledger is None:
            with contextlib.suppress(Exception):
                pool._stop_blocking(False, _EXIT_TIMEOUT_S)


def _forget_parent() -> None:
    for pool in list(live):
        pool._core.forked()
        if pool._keeper is not None:
            pool._keeper.forked()


atexit.register(_stop_live)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
