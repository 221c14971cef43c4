"""What failures of a handler lead to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tidewire.errors import InvalidArgument

OnFailure = Literal["resume", "restart", "stop", "escalate"]
Overflow = Literal["wait", "fail", "drop_new", "drop_old"]
Priority = Literal["high", "normal", "low"]


@dataclass(frozen=True)
class Supervision:
    """What failures of an actor's handler lead to.

    The failed message is handed out again until ``max_deliveries`` is reached, and then becomes a dead letter. After that:

    - ``"resume"`` goes on with the state as it is,
    - ``"restart"`` makes a new object of the actor's class and goes on with the mailbox as it is,
    - ``"stop"`` stops the actor,
    - ``"escalate"`` stops the actor, and its parent fails with the same error.

    Args:
        on_failure: What to do; the default is "resume".
        max_deliveries: How often a message is handed out, 1 to 1,000.
        max_restarts: Restarts allowed within the window; one more stops the actor.
        window_ms: The window, in milliseconds.
        backoff_ms: Wait before the first restart, in milliseconds. Each further one in the window waits twice as long, less a random part.
        backoff_max_ms: Longest wait before a restart, in milliseconds.

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    on_failure: OnFailure = "resume"
    max_deliveries: int = 1
    max_restarts: int = 10
    window_ms: float = 60_000
    backoff_ms: float = 100
    backoff_max_ms: float = 10_000

    def __post_init__(self) -> None:
        if self.on_failure not in get_args(OnFailure):
            raise InvalidArgument(
                f"supervision.on_failure: {self.on_failure!r} is not allowed: use one of {', '.join(map(repr, get_args(OnFailure)))}"
            )
        _whole("supervision.max_deliveries", self.max_deliveries, 1, 1_000)
        _whole("supervision.max_restarts", self.max_restarts, 0, 1_000_000)
        for name in ("window_ms", "backoff_ms", "backoff_max_ms"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 86_400_000:
                raise InvalidArgument(
                    f"supervision.{name}: {value!r} is not allowed: give 0 to 86,400,000 milliseconds"
                )


@dataclass(frozen=True)
class Mailbox:
    """Capacity and overflow policy of an actor's mailbox.

    Args:
        capacity: Most messages that wait at once, 1 to 1,000,000.
        overflow: What happens to one more: "wait" (``tell`` raises, ``send`` waits), "fail" (both raise),
            "drop_new" (it is dropped), or "drop_old" (the oldest waiting one is dropped).

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    capacity: int = 10_000
    overflow: Overflow = "wait"

    def __post_init__(self) -> None:
        _whole("mailbox.capacity", self.capacity, 1, 1_000_000)
        if self.overflow not in get_args(Overflow):
            raise InvalidArgument(
                f"mailbox.overflow: {self.overflow!r} is not allowed: use one of {', '.join(map(repr, get_args(Overflow)))}"
            )


def _whole(field: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgument(f"{field}: {value!r} is not allowed: give a whole number from {low:,} to {high:,}")
