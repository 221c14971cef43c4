"""Page of memory that a worker process shares with its parent: its present task, its heartbeat, and
the tasks to skip.

The worker writes ``STARTED_NS`` before ``BEGUN``, so that a reader of a task's number sees no start
before its own. The parent writes ``SKIP_TO`` before ``SKIP_AFTER`` and then waits a moment before
it reads ``BEGUN``: from then on the worker begins no task within the range, as it writes ``BEGUN``
first and looks at the range second.
"""

from __future__ import annotations

from typing import Final

BEGUN: Final = 0
"""The position of the task that was begun last; positions count from 1 what one worker was
given.
"""
STARTED_NS: Final = 1
"""When that was, on the monotonic clock of the machine."""
SKIP_AFTER: Final = 2
"""Positions above this one are skipped ..."""
SKIP_TO: Final = 3
"""... up to this one."""
BEAT_NS: Final = 4
"""When the worker last showed, while it had a task, that it can run Python."""

NOTHING: Final = 2**63
