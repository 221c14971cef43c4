"""The restart policy of pool workers. A state machine: time goes in, a decision comes out."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from tidewire.pools.options import Restarts


class Replace(NamedTuple):
    """Replace the worker after this wait."""

    wait_ms: float


class GiveUp(NamedTuple):
    """Replace no worker any more."""

    reason: str


class RestartWindow:
    """Counts workers that ended without having finished a task.

    A worker that finished one shows that the pool can work: its end is bad luck or one bad task,
    which the limit of deliveries deals with. So only ends without progress count, and only they
    wait.
    """

    def __init__(self, options: Restarts, seed: int) -> None:
        self._options = options
        self._random = random.Random(seed)
        self._ends_ms: deque[float] = deque()

    def ended(self, now_ms: float, progress: bool) -> Replace | GiveUp:
        """Decide what follows the end of a worker that had (``progress``) or had not finished a
        task.
        """
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
