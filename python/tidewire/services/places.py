"""Places for those that run at once; others wait in their order."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar, get_args

from tidewire.agents.message import Priority
from tidewire.errors import MailboxFull

_T = TypeVar("_T")


class Places(Generic[_T]):
    """At most so many run, and at most so many wait.

    Args:
        most: How many run.
        waiting: How many wait.
    """

    def __init__(self, most: int, waiting: int) -> None:
        self._most = most
        self._waiting = waiting
        # The lock protects both below. A stream that is collected while this thread holds the lock takes it again.
        self._lock = threading.RLock()
        self._running: set[_T] = set()
        # In the order in which they are served.
        self._lines: dict[str, dict[_T, None]] = {priority: {} for priority in get_args(Priority)}

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._lines.values()))

    def enter(self, one: _T, priority: str) -> bool:
        """Return whether it runs; else it waits, until ``leave`` of another gives it back.

        Raises:
            MailboxFull: if too many wait.
        """
        with self._lock:
            if len(self._running) < self._most:
                self._running.add(one)
                return True
            if self.waiting >= self._waiting:
                raise MailboxFull(f"service_waiting={self._waiting}: so many wait already: try again later")
            self._lines[priority][one] = None
            return False

    def leave(self, one: _T) -> _T | None:
        """Say that it runs no more, or waits no more. Return the one that runs in its place."""
        with self._lock:
            for waits in self._lines.values():
                waits.pop(one, None)
            if one not in self._running:
                return None
            self._running.remove(one)
            line: dict[_T, None] = next((line for line in self._lines.values() if line), {})
            if not line:
                return None
            following = next(iter(line))
            del line[following]
            self._running.add(following)
            return following
