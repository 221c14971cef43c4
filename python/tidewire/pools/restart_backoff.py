"""Time of the next worker start: missing workers start after the backoff of those that ended."""

from __future__ import annotations

from tidewire.pools.options import Restarts
from tidewire.pools.restarts import GiveUp, RestartWindow


class Replacing:
    """Keeps count of the workers that a pool should have."""

    def __init__(self, wanted: int, restarts: Restarts, seed: int) -> None:
        self.wanted = wanted
        self.given_up: tuple[str, BaseException | None] | None = None
        self._window = RestartWindow(restarts, seed)
        self._waits_ns: list[int] = []

    def ended(self, now_ns: int, progress: bool, how: str, cause: BaseException | None) -> None:
        """Plan the replacement of a worker that ended, or give up."""
        decision = self._window.ended(now_ns / 1e6, progress)
        if isinstance(decision, GiveUp):
            self.give_up(f"{decision.reason}; the last one: {how}", cause)
        elif decision.wait_ms:
            self._waits_ns.append(now_ns + int(decision.wait_ms * 1e6))

    def give_up(self, reason: str, cause: BaseException | None) -> None:
        """Start no worker any more."""
        self.given_up = self.given_up or (reason, cause)

    def due(self, now_ns: int, there: int) -> bool:
        """Tell whether a worker should be started now."""
        self._waits_ns = [wait_ns for wait_ns in self._waits_ns if wait_ns > now_ns]
        return self.given_up is None and there + len(self._waits_ns) < self.wanted

    def next_ns(self, now_ns: int, there: int) -> int | None:
        """Return when to ask again, or None if nothing is missing."""
        if self.given_up is not None or there >= self.wanted:
            return None
        return now_ns if self.due(now_ns, there) else min(self._waits_ns, default=None)
