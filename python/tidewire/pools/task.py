"""Tasks of a pool, from their submit to their end: single ones, and ranges of one map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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

    count: ClassVar[int] = 1
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

    def part(self, first: int, last: int) -> Task:
        """See ``TaskRange.part``."""
        return self

    def __repr__(self) -> str:
        # Behind the payload a pool of agents sends what its workers need to know of the message.
        what = f"payload={self.args[0]!r:.200}" if self.key == FROM_AGENT else f"args={self.args!r:.200}"
        return f"<Task {self.number} {what} deliveries={self.deliveries}>"


class TaskRange:
    """Tasks of one map that follow one another: one for each value from ``start`` to ``stop``. Its
    limits never change, as a worker may still have a range that was taken back.

    The values are shared by all parts of a range. ``payload`` has their items as they travel, or is
    None if the values travel as they are. ``number`` and ``key`` are those of the first task.
    """

    cancelled: ClassVar[bool] = False
    deliveries: ClassVar[int] = 0
    __slots__ = ("answer", "key", "number", "payload", "queued_ns", "start", "state", "stop", "values")

    def __init__(self, values: list[Any], payload: list[Any] | None, key: int, answer: Answer | None) -> None:
        self.values = values
        self.payload = payload
        self.key = key
        self.answer = answer
        self.number = 0
        self.state = PARKED
        self.queued_ns = 0
        self.start = 0
        self.stop = len(values)

    @property
    def count(self) -> int:
        return self.stop - self.start

    def part(self, first: int, last: int) -> Unit:
        """Return the tasks from ``first`` up to ``last``, counted from the start of this range."""
        start, stop = self.start + first, self.start + last
        part: Unit
        if last - first == 1:
            payload = (self.values[start],) if self.payload is None else self.payload[start]
            part = Task((self.values[start],), {}, payload, self.key + first)
        else:
            part = TaskRange(self.values, self.payload, self.key + first, None)
            part.start, part.stop = start, stop
        part.number = self.number + first
        part.answer, part.queued_ns, part.state = self.answer, self.queued_ns, self.state
        return part


Unit = Task | TaskRange


def singles(units: Iterable[Unit]) -> list[Task]:
    """Return each task by itself."""
    tasks: list[Any] = []
    for unit in units:
        tasks += [unit] if isinstance(unit, Task) else [unit.part(n, n + 1) for n in range(unit.count)]
    return tasks


def is_wanted(unit: Unit) -> bool:
    """Tell whether somebody waits for the outcome."""
    return unit.answer is not None and not unit.answer.is_abandoned


def is_cancelled(tasks: Sequence[Unit]) -> bool:
    """Tell whether a worker is to end what it is at: each of its tasks was cancelled."""
    return bool(tasks) and all(
        task.cancelled or (task.answer is not None and task.answer.is_cancelled) for task in tasks
    )


def report_all(tasks: list[Task], fraction: float, note: str) -> None:
    """Hand a report of progress to those who listen."""
    for task in tasks:
        if task.listener is not None:
            task.listener(fraction, note)
