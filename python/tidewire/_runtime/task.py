"""Current task of a pool worker, for ``tw.context()``."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tidewire.errors import InvalidArgument

_NOTE_MAX = 1_024


class RunningTask:
    """Current task or batch of a worker: its cancellation, and its progress reports."""

    def __init__(self, is_cancelled: Callable[[], bool], report: Callable[[float, str], object]) -> None:
        self.is_cancelled = is_cancelled
        self.report = report

    @property
    def request(self) -> Any:
        raise InvalidArgument("context: a task of a pool belongs to no call: pass what it needs as arguments")

    instance = request


running_task: ContextVar[Callable[[], RunningTask] | None] = ContextVar("tidewire_task", default=None)


def check_report(fraction: object, note: object) -> None:
    """Check a progress report. Raises InvalidArgument if an argument is not allowed."""
    if not isinstance(fraction, (int, float)) or isinstance(fraction, bool) or not 0 <= fraction <= 1:
        raise InvalidArgument(f"fraction: {fraction!r} is not allowed: give a number from 0 to 1")
    if not isinstance(note, str) or len(note) > _NOTE_MAX:
        raise InvalidArgument(f"note: {str(note)[:40]!r} is not allowed: give a text of at most {_NOTE_MAX} letters")
