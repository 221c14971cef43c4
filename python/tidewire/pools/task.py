"""Tasks of a pool: single tasks, and ranges of one map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidewire.pools.options import OnCancel, OnProgress
    from tidewire.pools.results.answers import Answer

PARKED: Final = 0
"""Not accepted yet: it waits for capacity in the backlog."""
WAITING: Final = 1
"""Accepted, and in the backlog."""
ASSIGNED: Final = 2
"""Assigned to a worker."""
ENDED: Final = 3
"""Ended with an outcome, or dropped."""


FROM_AGENT: Final = -1
"""Key of a task whose outcome goes to the agent of the pool."""


class Task:
    """One submitted task.

    Attributes:
        number: Number of the task in the pool, from 1.
        args: Positional arguments.
        kwargs: Keyword arguments.
        deliveries: Number of workers that ended during the task.
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
        # A task of an agent has the message as second argument.
        values = f"payload={self.args[0]!r:.200}" if self.key == FROM_AGENT else f"args={self.args!r:.200}"
        return f"<Task {self.number} {values} deliveries={self.deliveries}>"


class TaskRange:
    """Consecutive tasks of one map: one for each value from ``start`` to ``stop``. Its limits never
    change, as a worker may still have a range that was recalled.

    All parts of a range share the values. ``payload`` has their encoded items, or is None if the
    values need no encoding. ``number`` and ``key`` belong to the first task.
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
    """Split ranges into single tasks."""
    tasks: list[Any] = []
    for unit in units:
        tasks += [unit] if isinstance(unit, Task) else [unit.part(n, n + 1) for n in range(unit.count)]
    return tasks


def is_wanted(unit: Unit) -> bool:
    """Return True if the outcome has a receiver."""
    return unit.answer is not None and not unit.answer.is_abandoned


def is_cancelled(tasks: Sequence[Unit]) -> bool:
    """Return True if a worker must end its call, as each of its tasks is cancelled."""
    return bool(tasks) and all(
        task.cancelled or (task.answer is not None and task.answer.is_cancelled) for task in tasks
    )


def report_all(tasks: list[Task], fraction: float, note: str) -> None:
    """Pass a progress report to the listeners of the tasks."""
    for task in tasks:
        if task.listener is not None:
            task.listener(fraction, note)
