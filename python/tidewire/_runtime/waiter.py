"""Waits of a task or a thread for a signal from any thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

from tidewire._runtime.current import running_loop


class Waiter:
    """A waiting task or thread, which is woken once.

    Attributes:
        left_s: Timeout of the wait in seconds; None for no limit.
    """

    __slots__ = ("_event", "_future", "_loop", "left_s")

    def __init__(self) -> None:
        self.left_s: float | None = None
        self._loop = running_loop()
        self._future = None if self._loop is None else self._loop.create_future()
        self._event = threading.Event() if self._loop is None else None

    @property
    def is_waiting(self) -> bool:
        """True until it is woken or cancelled."""
        return self._future is None or not self._future.done()

    def within(self, left_s: float | None) -> Waiter:
        """Set the timeout, and return the waiter."""
        self.left_s = left_s
        return self

    def wake(self) -> None:
        """Wake it, from any thread."""
        if self._event is not None:
            self._event.set()
        elif self._loop is running_loop():
            self._set()
        else:
            assert self._loop is not None
            # A closed loop has no waiters.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._set)

    def __await__(self) -> Generator[Any, Any, None]:
        assert self._loop is not None and self._future is not None
        timer = None if self.left_s is None else self._loop.call_later(self.left_s, self._set)
        try:
            yield from self._future
        finally:
            if timer is not None:
                timer.cancel()

    def wait(self) -> None:
        """Block this thread until it is woken."""
        assert self._event is not None
        self._event.wait(self.left_s)

    def _set(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
