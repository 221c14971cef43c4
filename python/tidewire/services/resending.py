"""The retry policy of a call whose link was lost: which errors it is for."""

from __future__ import annotations

import random

from tidewire._binding import Retry
from tidewire.errors import LinkLost, NodeStopped, NoResponders


class Resending:
    """One call of an idempotent method.

    Args:
        until: When the call ends at the latest, in seconds; None if it has no end.
        left: How often it may be made again.

    Attributes:
        lost: The error with which its link was lost at last.
    """

    __slots__ = ("_retry", "lost")

    def __init__(self, until: float | None, left: int) -> None:
        self._retry = Retry(until, left, random.getrandbits(64))
        self.lost: BaseException | None = None

    def after_loss(self, error: BaseException, now: float) -> float | None:
        """Return how long to wait before the call is made again, after it was sent and its link was lost; None: it is not."""
        if getattr(error, "unsent", False) is True:
            return self.while_nobody(error, now)
        wait_s = self._retry.after_loss(now) if is_loss(error) else None
        self.lost = self.lost if wait_s is None else error
        return wait_s

    def while_nobody(self, error: BaseException, now: float) -> float | None:
        """Return how long to wait, as the call could not be sent: the link is not back, or nobody answers yet; None: it is given up."""
        return self._retry.while_nobody(now) if is_loss(error) or _is_nobody(error) else None


def is_loss(error: BaseException) -> bool:
    """Return whether an error says that a link was lost, rather than that a handler raised such an error."""
    return isinstance(error, LinkLost) and getattr(error, "of_link", False) is True


def _is_nobody(error: BaseException) -> bool:
    return isinstance(error, NoResponders) or (isinstance(error, NodeStopped) and error.retryable)
