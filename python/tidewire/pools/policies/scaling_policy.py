"""Scaling policy of a pool. A state machine without a clock: time is an argument."""

from __future__ import annotations

from typing import NamedTuple

from tidewire.pools.options import Scale

_PAUSE_UP_MS = 250.0
_CALM = 0.25


class Load(NamedTuple):
    """Load of a pool at one moment."""

    workers: int
    busy: int
    waiting: int
    oldest_wait_ms: float


class Decision(NamedTuple):
    """New number of workers, with the reason."""

    at_ms: float
    before: int
    workers: int
    reason: str


class Scaling:
    """Scaling that adds workers while the oldest task waits longer than the target, and removes
    workers that were not needed for a while.

    Between the target and a quarter of it the number is stable, to avoid oscillation.
    """

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._grown_ms = float("-inf")
        self._calm_since_ms: float | None = None
        self._busy_most = 0

    def observe(self, now_ms: float, load: Load) -> Decision | None:
        """Return a decision to change the number of workers, or None."""
        if load.oldest_wait_ms > self._scale.target_wait_ms:
            self._calm_since_ms = None
            return self._grow(now_ms, load)
        return self._shrink(now_ms, load)

    def _grow(self, now_ms: float, load: Load) -> Decision | None:
        # New workers need a moment before they can change the queueing time.
        if load.workers >= self._scale.max or now_ms - self._grown_ms < _PAUSE_UP_MS:
            return None
        self._grown_ms = now_ms
        more = max(1, min(load.waiting, load.workers // 2))
        return self._decide(
            now_ms,
            load,
            load.workers + more,
            f"the oldest task has waited {load.oldest_wait_ms:.0f} ms, and the target is {self._scale.target_wait_ms:g} ms",
        )

    def _shrink(self, now_ms: float, load: Load) -> Decision | None:
        calm = load.oldest_wait_ms <= self._scale.target_wait_ms * _CALM and load.busy < load.workers
        if not calm or load.workers <= self._scale.min:
            self._calm_since_ms = None
            return None
        if self._calm_since_ms is None:
            self._calm_since_ms, self._busy_most = now_ms, load.busy
        self._busy_most = max(self._busy_most, load.busy)
        if now_ms - self._calm_since_ms < self._scale.idle_ms:
            return None
        return self._remove(now_ms, load)

    def _remove(self, now_ms: float, load: Load) -> Decision:
        busy_most, self._calm_since_ms = self._busy_most, None
        reason = f"at most {busy_most} of {load.workers} workers were busy for {self._scale.idle_ms / 1_000:g} s"
        less = max(1, (load.workers - busy_most) // 2)
        return self._decide(now_ms, load, load.workers - less, reason)

    def _decide(self, now_ms: float, load: Load, workers: int, reason: str) -> Decision:
        bounded = max(self._scale.min, min(self._scale.max, workers))
        return Decision(now_ms, load.workers, bounded, reason)
