"""When a call whose link was lost is made again: a machine that is told what happened and when, and knows no clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tidewire.errors import LinkLost, NodeStopped, NoResponders

_FIRST_S = 0.02
_LONGEST_S = 0.5


@dataclass
class Resending:
    """One call of an idempotent method.

    Args:
        until: When the call ends at the latest, in seconds; None if it has no end.
        left: How often it may be made again.
        dice: Where the jitter comes from.
    """

    until: float | None
    left: int
    dice: random.Random = field(default_factory=random.Random)
    lost: BaseException | None = None
    _wait_s: float = _FIRST_S

    def after_loss(self, error: BaseException, now: float) -> float | None:
        """Return how long to wait before the call is made again, after it was sent and its link was lost; None: it is not."""
        if getattr(error, "unsent", False) is True:
            return self.while_nobody(error, now)
        if not is_loss(error) or self.left <= 0:
            return None
        self.left -= 1
        self.lost, self._wait_s = error, _FIRST_S
        return self._next(now)

    def while_nobody(self, error: BaseException, now: float) -> float | None:
        """Return how long to wait, as the call could not be sent: the link is not back, or nobody answers yet; None: it is given up."""
        if self.lost is None or not (is_loss(error) or _is_nobody(error)):
            return None
        return self._next(now)

    def _next(self, now: float) -> float | None:
        wait_s = self._wait_s * (0.5 + self.dice.random() / 2)
        self._wait_s = min(2 * self._wait_s, _LONGEST_S)
        return wait_s if self.until is None or now + wait_s < self.until else None


def is_loss(error: BaseException) -> bool:
    """Return whether an error says that a link was lost, rather than that a handler raised such an error."""
    return isinstance(error, LinkLost) and getattr(error, "of_link", False) is True


def _is_nobody(error: BaseException) -> bool:
    return isinstance(error, NoResponders) or (isinstance(error, NodeStopped) and error.retryable)
