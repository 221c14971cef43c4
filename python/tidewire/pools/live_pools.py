"""Pools of this process: those made by a node, and those that have started. They end with the
process; a forked child disowns them.
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
"""Supervisors. They outlive a collected pool until its accepted tasks are handled."""


def _stop_live() -> None:
    for supervisor in list(supervisors):
        with contextlib.suppress(Exception):
            supervisor.stop(_EXIT_TIMEOUT_S)


def _forget_parent() -> None:
    for supervisor in list(supervisors):
        supervisor.core.disown()


atexit.register(_stop_live)
in_child(_forget_parent)
