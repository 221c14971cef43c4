"""Page of memory that a worker process shares with its parent: its present task, its heartbeat, and
the tasks to skip.

The worker writes ``STARTED_NS`` before ``BEGUN``, so that a reader of a position sees no earlier
start. The parent writes ``SKIP_TO`` before ``SKIP_AFTER``, and reads ``BEGUN`` a moment later. From
then on the worker begins no task within the range: it writes ``BEGUN`` before it reads the range.
"""

from __future__ import annotations

from typing import Final

BEGUN: Final = 0
"""Position of the last begun task. Positions number the tasks of one worker from 1."""
STARTED_NS: Final = 1
"""Start time of this task, on the monotonic clock of the machine."""
SKIP_AFTER: Final = 2
"""Positions above this one are skipped,"""
SKIP_TO: Final = 3
"""up to this one."""
BEAT_NS: Final = 4
"""Time of the last heartbeat, which the worker writes while it has a task."""

NOTHING: Final = 2**63
