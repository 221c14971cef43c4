"""The nodes of this process, which end with it."""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from typing import TYPE_CHECKING

from tidewire import _binding
from tidewire._runtime import steps

if TYPE_CHECKING:
    from tidewire.node import Node

_EXIT_TIMEOUT_S = 1.0

live: weakref.WeakSet[Node] = weakref.WeakSet()
ended_stuck: deque[str] = deque(maxlen=1)
"""The name of the last node that ended before its handlers, until somebody has looked."""


def end_now() -> None:
    """Have whatever waits for the end of a node give it up."""
    for node in list(live):
        node._ends_now = True


def has_ended_stuck() -> bool:
    """Return whether a node has ended, since the last look, with handlers that had not."""
    found = bool(ended_stuck)
    ended_stuck.clear()
    return found


def _stop_all() -> None:
    """Stop the nodes that are still live when the interpreter ends, and let queued log lines out,
    so that none of their threads outlives it.
    """
    for node in list(live):
        steps.blocking(node._aborting() if node._ends_now else node._stopping(_EXIT_TIMEOUT_S))
    _binding.finish_threads()


atexit.register(_stop_all)
