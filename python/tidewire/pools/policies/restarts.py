"""Restart policy of pool workers. A state machine without a clock: time is an argument."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from tidewire.pools.options import Restarts


class Replace(NamedTuple):
    """Decision to replace the worker after a wait."""

    wait_ms: float


class GiveUp(NamedTuple):
    """Decision to replace no more workers."""

    reason: str


class RestartWindow:
    """Window of workers that ended without a finished task.

    A worker that has finished a task proves that the pool works. Its end is bad luck or one bad
    task, which ``max_deliveries`` limits. So only ends without progress count, with a backoff.
    """

    def __init__(self, options: Restarts, seed: int) -> None:
        self._options = options
        self._random = random.Random(seed)
        self._ends_ms: deque[float] = deque()

    def ended(self, now_ms: float, progress: bool) -> Replace | GiveUp:
        """Decide about the replacement of a worker; ``progress`` if it has finished a task."""
        self._forget(now_ms)
        if progress:
            return Replace(0.0)
        self._ends_ms.append(now_ms)
        if len(self._ends_ms) > self._options.max:
            return GiveUp(
                f"{len(self._ends_ms)} workers ended within {self._options.window_ms / 1_000:g} s "
                f"without having finished a task, and restarts.max is {self._options.max}"
            )
        return Replace(self._wait_ms(len(self._ends_ms)))

    def _forget(self, now_ms: float) -> None:
        while self._ends_ms and self._ends_ms[0] <= now_ms - self._options.window_ms:
            self._ends_ms.popleft()

    def _wait_ms(self, ends: int) -> float:
        if ends == 1:
            return 0.0
        doubled = self._options.backoff_ms * 2.0 ** min(ends - 2, 60)
        return min(doubled, self._options.backoff_max_ms) * self._random.uniform(0.5, 1.0)


class WorkerReplacement:
    """Replacement of workers up to the target number."""

    def __init__(self, target: int, restarts: Restarts, seed: int) -> None:
        self.target = target
        self.given_up: tuple[str, BaseException | None] | None = None
        self._window = RestartWindow(restarts, seed)
        self._waits_ns: list[int] = []

    def ended(self, now_ns: int, progress: bool, description: str, cause: BaseException | None) -> None:
        """Schedule the replacement of an ended worker, or give up."""
        decision = self._window.ended(now_ns / 1e6, progress)
        if isinstance(decision, GiveUp):
            self.give_up(f"{decision.reason}; the last one: {description}", cause)
        elif decision.wait_ms:
            self._waits_ns.append(now_ns + int(decision.wait_ms * 1e6))

    def give_up(self, reason: str, cause: BaseException | None) -> None:
        """Start no more workers."""
        self.given_up = self.given_up or (reason, cause)

    def due(self, now_ns: int, count: int) -> bool:
        """Return True if a worker should be started now."""
        self._waits_ns = [wait_ns for wait_ns in self._waits_ns if wait_ns > now_ns]
        return self.given_up is None and count + len(self._waits_ns) < self.target

    def next_ns(self, now_ns: int, count: int) -> int | None:
        """Return the time of the next check, or None if no worker is missing."""
        if self.given_up is not None or count >= self.target:
            return None
        return now_ns if self.due(now_ns, count) else min(self._waits_ns, default=None)
