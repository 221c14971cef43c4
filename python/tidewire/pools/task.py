"""One task of a pool, from its submit to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidewire.pools.options import OnCancel, OnProgress
    from tidewire.pools.results.answers import Answer

PARKED: Final = 0
"""Not accepted yet: it waits for room."""
WAITING: Final = 1
"""Accepted; no worker has it."""
HANDED: Final = 2
"""A worker has it."""
ENDED: Final = 3
"""It has its outcome, or was dropped."""


FROM_AGENT: Final = -1
"""The key of a task whose outcome the agent of the pool takes."""


class Task:
    """One task: what was submitted, and how often it was handed to a worker that ended over it.

    Attributes:
        number: Its number in the pool, from 1.
        args: The positional arguments.
        kwargs: The arguments by name.
        deliveries: How often it was begun and given up with its worker.
    """

    __slots__ = (
        *("answer", "args", "cancelled", "deliveries", "key", "kwargs", "listener"),
        *("number", "on_cancel", "payload", "queued_ns", "state"),
    )

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], payload: Any = None, key: int = 0) -> None:
        self.number = 0
        self.args = args
        self.kwargs = kwargs
        self.deliveries = 0
        self.payload = payload
        self.key = key
        self.state = PARKED
        self.queued_ns = 0
        self.answer: Answer | None = None
        self.cancelled = False
        self.on_cancel: OnCancel | None = None
        self.listener: OnProgress | None = None

    def __repr__(self) -> str:
        # Behind the payload a pool of agents sends what its workers need to know of the message.
        what = f"payload={self.args[0]!r:.200}" if self.key == FROM_AGENT else f"args={self.args!r:.200}"
        return f"<Task {self.number} {what} deliveries={self.deliveries}>"


def is_cancelled(tasks: list[Task]) -> bool:
    """Tell whether a worker is to end what it is at: each of its tasks was cancelled."""
    return bool(tasks) and all(task.cancelled for task in tasks)


def report_all(tasks: list[Task], fraction: float, note: str) -> None:
    """Hand a report of progress to those who listen."""
    for task in tasks:
        if task.listener is not None:
            task.listener(fraction, note)
