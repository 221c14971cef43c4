"""The live nodes of this process, which stop at its exit."""

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
"""Name of the last node that stopped before its handlers, until ``has_ended_stuck`` reads it."""


def end_now() -> None:
    """Drop the grace time of all stops."""
    for node in list(live):
        node._ends_now = True


def has_ended_stuck() -> bool:
    """Return True if a node has stopped with stuck handlers since the last call."""
    found = bool(ended_stuck)
    ended_stuck.clear()
    return found


def _stop_all() -> None:
    """Stop the live nodes at interpreter exit, and flush queued log lines, so that no thread
    outlives it.
    """
    for node in list(live):
        steps.blocking(node._aborting() if node._ends_now else node._stopping(_EXIT_TIMEOUT_S))
    _binding.finish_threads()


atexit.register(_stop_all)
