"""What an instance of a service counts."""

from __future__ import annotations

import threading
from typing import Any

from tidewire.pools.tally import Histogram


class Tally:
    """Counts of calls and their times."""

    def __init__(self) -> None:
        # The lock protects all below: plain functions end on several threads.
        self._lock = threading.RLock()
        self._begun = self._ended = self._errors = self._cancelled = self._streams = 0
        self._times = Histogram()

    def began(self) -> None:
        """Note that a handler has begun."""
        with self._lock:
            self._begun += 1

    def ended(self, us: int) -> None:
        """Note that a handler gave its result."""
        with self._lock:
            self._ended += 1
            self._times.add(us)

    def failed(self) -> None:
        """Note that a handler raised."""
        with self._lock:
            self._ended += 1
            self._errors += 1

    def cancelled(self) -> None:
        """Note that a handler ended because nobody waited for it any more."""
        with self._lock:
            self._ended += 1
            self._cancelled += 1

    def streamed(self) -> None:
        """Note that a stream has come to its end."""
        with self._lock:
            self._ended += 1
            self._streams += 1

    def summary(self) -> dict[str, Any]:
        """Return what people look at. Times are those of handlers that gave a result."""
        with self._lock:
            return {
                "calls": self._begun,
                "errors": self._errors,
                "cancelled": self._cancelled,
                "streams": self._streams,
                "in_flight": self._begun - self._ended,
                "p50_us": self._times.quantile(0.5),
                "p99_us": self._times.quantile(0.99),
            }
