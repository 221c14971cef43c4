"""Supervision policy: the reaction to failures of a handler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tidewire._limits import (
    MAILBOX_CAPACITY,
    MAX_DELIVERIES,
    MAX_RESTARTS,
    RESTART_BACKOFF_MAX_MS,
    RESTART_BACKOFF_MS,
    RESTART_WINDOW_MS,
    Limit,
)
from tidewire.errors import InvalidArgument

OnFailure = Literal["resume", "restart", "stop", "escalate"]
Overflow = Literal["wait", "fail", "drop_new", "drop_old"]
Priority = Literal["high", "normal", "low"]


@dataclass(frozen=True)
class Supervision:
    """Reaction to failures of an actor's handler.

    The failed message is redelivered until ``max_deliveries`` is reached, and then becomes a dead
    letter. After that:

    - ``"resume"`` keeps the state,
    - ``"restart"`` makes a new object of the actor's class and keeps the mailbox; it needs a class,
      not one object,
    - ``"stop"`` stops the actor,
    - ``"escalate"`` stops the actor, and its parent fails with the same error.

    Args:
        on_failure: The reaction; the default is "resume".
        max_deliveries: Most deliveries of a message, 1 to 1,000.
        max_restarts: Restarts allowed within the window; one more stops the actor.
        window_ms: The window in milliseconds.
        backoff_ms: Delay before the first restart, in milliseconds. It doubles with each restart in
            the window, less a random part.
        backoff_max_ms: Longest delay before a restart, in milliseconds.

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    on_failure: OnFailure = "resume"
    max_deliveries: int = MAX_DELIVERIES.default
    max_restarts: int = MAX_RESTARTS.default
    window_ms: float = RESTART_WINDOW_MS.default
    backoff_ms: float = RESTART_BACKOFF_MS.default
    backoff_max_ms: float = RESTART_BACKOFF_MAX_MS.default

    def __post_init__(self) -> None:
        one_of("supervision.on_failure", self.on_failure, get_args(OnFailure))
        whole("supervision.max_deliveries", self.max_deliveries, MAX_DELIVERIES)
        whole("supervision.max_restarts", self.max_restarts, MAX_RESTARTS)
        _millis("supervision.window_ms", self.window_ms, RESTART_WINDOW_MS)
        _millis("supervision.backoff_ms", self.backoff_ms, RESTART_BACKOFF_MS)
        _millis("supervision.backoff_max_ms", self.backoff_max_ms, RESTART_BACKOFF_MAX_MS)


@dataclass(frozen=True)
class Mailbox:
    """Capacity and overflow policy of an actor's mailbox.

    Args:
        capacity: Most messages that wait at once, 1 to 1,000,000.
        overflow: Behavior for a further message: "wait" (``tell`` raises, ``send`` waits),
            "fail" (both raise), "drop_new" (it is dropped), or "drop_old" (the oldest waiting one
            is dropped).

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    capacity: int = MAILBOX_CAPACITY.default
    overflow: Overflow = "wait"

    def __post_init__(self) -> None:
        whole("mailbox.capacity", self.capacity, MAILBOX_CAPACITY)
        one_of("mailbox.overflow", self.overflow, get_args(Overflow))


def whole(field: str, value: object, limit: Limit) -> None:
    """Refuse a value that is not an integer within a limit. True and False are not numbers here.

    Raises:
        InvalidArgument: if the value is not allowed.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not limit.min <= value <= limit.max:
        raise InvalidArgument(
            f"{field}: {value!r} is not allowed: give a whole number from {limit.min:,} to {limit.max:,}"
        )


def _millis(field: str, value: object, limit: Limit) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not limit.min <= value <= limit.max:
        raise InvalidArgument(f"{field}: {value!r} is not allowed: give {limit.min:,} to {limit.max:,} milliseconds")


def one_of(field: str, value: object, names: tuple[str, ...]) -> None:
    # A list can't be looked up by its hash, nor be one of the names.
    if not isinstance(value, str) or value not in names:
        raise InvalidArgument(f"{field}: {value!r} is not allowed: use one of {', '.join(map(repr, names))}")
