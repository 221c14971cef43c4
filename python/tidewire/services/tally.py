"""What an instance of a service counts."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from tidewire.pools.tally import Histogram

_LATEST = 1024


class Tally:
    """Counts of calls and their times."""

    def __init__(self) -> None:
        # The lock protects all below: plain functions end on several threads.
        self._lock = threading.RLock()
        self._begun = self._ended = self._errors = self._cancelled = self._streams = 0
        self._times = Histogram()
        self._latest: list[int] = []

    def began(self) -> None:
        """Note that a handler has begun."""
        with self._lock:
            self._begun += 1

    def ended(self, us: int) -> None:
        """Note that a handler gave its result."""
        with self._lock:
            self._ended += 1
            self._latest.append(us)
            if len(self._latest) == _LATEST:
                self._sort_in()

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
            self._sort_in()
            return {
                "calls": self._begun,
                "errors": self._errors,
                "cancelled": self._cancelled,
                "streams": self._streams,
                "in_flight": self._begun - self._ended,
                "p50_us": self._times.quantile(0.5),
                "p99_us": self._times.quantile(0.99),
            }

    def _sort_in(self) -> None:
        # Many at once, of which some are equal, cost less than each by itself.
        for us, count in Counter(self._latest).items():
            self._times.add(us, count)
        self._latest.clear()
