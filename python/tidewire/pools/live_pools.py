"""The pools of this process that a node has made, or that have started. They end with the process,
and a forked child leaves them to its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import TYPE_CHECKING

from tidewire._runtime.process_state import in_child

if TYPE_CHECKING:
    from tidewire.pools.pool import Pool
    from tidewire.pools.supervisor import PoolSupervisor

_EXIT_TIMEOUT_S = 1.0

live: weakref.WeakSet[Pool] = weakref.WeakSet()
supervisors: weakref.WeakSet[PoolSupervisor] = weakref.WeakSet()
"""Those of pools that were collected are at work until what these had accepted is handled."""


def _stop_live() -> None:
    for supervisor in list(supervisors):
        with contextlib.suppress(Exception):
            supervisor.stop(_EXIT_TIMEOUT_S)


def _forget_parent() -> None:
    for supervisor in list(supervisors):
        supervisor.core.disown()


atexit.register(_stop_live)
in_child(_forget_parent)
