"""Options of a pool, validated at construction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tidewire import _limits as limits
from tidewire.errors import InvalidArgument, TaskTimeout
from tidewire.pools.processes.pickler import Pickler
from tidewire.pools.task import Task
from tidewire.supervision import one_of, whole

Kind = Literal["thread", "process"]
Overflow = Literal["wait", "fail"]
OnCancel = Literal["interrupt", "kill", "leave"]
OnProgress = Callable[[float, str], Any]
OnDead = Callable[[Task, str, "BaseException | None"], Any]


@dataclass(frozen=True)
class Scale:
    """Number of workers that follows the queueing time.

    Args:
        min: Minimum number of workers, 1 to 1,024.
        max: Maximum number of workers, ``min`` to 1,024.
        target_wait_ms: Target of the queueing time in milliseconds. Workers are added while the
            oldest task has waited longer.
        idle_ms: Time in milliseconds with surplus workers after which they are removed.

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    min: int = 1
    max: int = 4
    target_wait_ms: float = limits.POOL_TARGET_WAIT_MS.default
    idle_ms: float = 2_000

    def __post_init__(self) -> None:
        whole("scale.min", self.min, limits.POOL_WORKERS)
        whole("scale.max", self.max, limits.POOL_WORKERS)
        if self.max < self.min:
            raise InvalidArgument(f"scale.max: {self.max} is less than scale.min: give {self.min} or more")
        number("scale.target_wait_ms", self.target_wait_ms, limits.POOL_TARGET_WAIT_MS)
        number("scale.idle_ms", self.idle_ms, limits.POOL_TARGET_WAIT_MS)


@dataclass(frozen=True)
class Batch:
    """Batching: the function takes a list of queued values, and returns a list of as many results.

    Args:
        size_max: Maximum number of tasks in one call, 1 to 100,000.
        budget_ms: Time in milliseconds that the oldest task waits for a fuller batch while other
            workers are busy. An idle pool never waits.

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    size_max: int = limits.POOL_BATCH_SIZE.default
    budget_ms: float = limits.POOL_BATCH_BUDGET_MS.default

    def __post_init__(self) -> None:
        whole("batch.size_max", self.size_max, limits.POOL_BATCH_SIZE)
        number("batch.budget_ms", self.budget_ms, limits.POOL_BATCH_BUDGET_MS)


@dataclass(frozen=True)
class Restarts:
    """Restart policy of workers.

    A worker that has finished a task is replaced at once when it ends. A worker that ends without a
    finished task counts, and is replaced after a backoff with jitter. The pool fails when more than
    ``max`` of them end within the window.

    Args:
        max: Maximum number of counted workers within the window, 0 to 1,000,000.
        window_ms: Length of the window, in milliseconds.
        backoff_ms: Wait before the second replacement, in milliseconds. It doubles with each
            further one.
        backoff_max_ms: Longest wait, in milliseconds.

    Raises:
        InvalidArgument: if a value is not allowed.
    """

    max: int = limits.POOL_RESTARTS.default
    window_ms: float = limits.RESTART_WINDOW_MS.default
    backoff_ms: float = limits.POOL_BACKOFF_MS.default
    backoff_max_ms: float = limits.POOL_BACKOFF_MAX_MS.default

    def __post_init__(self) -> None:
        whole("restarts.max", self.max, limits.POOL_RESTARTS)
        number("restarts.window_ms", self.window_ms, limits.RESTART_WINDOW_MS)
        number("restarts.backoff_ms", self.backoff_ms, limits.POOL_BACKOFF_MS)
        number("restarts.backoff_max_ms", self.backoff_max_ms, limits.POOL_BACKOFF_MAX_MS)


@dataclass(frozen=True)
class Options:
    """Settings of a pool except its function. ``Pool`` documents the fields."""

    name: str
    workers: int | Scale
    kind: Kind
    batch: Batch | None
    capacity: int
    overflow: Overflow
    task_timeout: float | None
    heartbeat_timeout: float | None
    max_deliveries: int
    restarts: Restarts
    result_bytes_max: int
    on_dead: OnDead | None
    pickler: Pickler = "pickle"
    on_cancel: OnCancel = "interrupt"
    # Name of its spans, or None. With spans, the headers of a task are its first argument.
    traced: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.workers, Scale):
            whole("workers", self.workers, limits.POOL_WORKERS)
        one_of("kind", self.kind, get_args(Kind))
        one_of("overflow", self.overflow, get_args(Overflow))
        one_of("pickler", self.pickler, get_args(Pickler))
        instance("batch", self.batch, (Batch, type(None)), "a tidewire.pools.Batch, or None")
        instance("restarts", self.restarts, Restarts, "a tidewire.pools.Restarts")
        instance("name", self.name, str, "a string, or None")
        whole("capacity", self.capacity, limits.POOL_CAPACITY)
        whole("max_deliveries", self.max_deliveries, limits.POOL_MAX_DELIVERIES)
        whole("result_bytes_max", self.result_bytes_max, limits.POOL_RESULT_BYTES)
        self._check_rest()

    def _check_rest(self) -> None:
        if self.task_timeout is not None:
            seconds("task_timeout", self.task_timeout, limits.POOL_TASK_TIMEOUT_MS)
        if self.heartbeat_timeout is not None:
            seconds("heartbeat_timeout", self.heartbeat_timeout, limits.POOL_HEARTBEAT_MS)
        self.check_on_cancel(self.on_cancel)
        if self.on_dead is not None and not callable(self.on_dead):
            raise InvalidArgument(f"on_dead: {self.on_dead!r} is not allowed: give a function, or None")

    def check_on_cancel(self, on_cancel: str) -> None:
        """Check a cancellation mode. Raises InvalidArgument if it is not allowed."""
        one_of("on_cancel", on_cancel, get_args(OnCancel))
        if on_cancel == "kill" and self.kind == "thread":
            problem = "on_cancel: 'kill' is not allowed with kind='thread', as threads can't be killed"
            raise InvalidArgument(f"{problem}: use kind='process', or on_cancel='interrupt'")

    def timeout_error(self, task: Task) -> TaskTimeout:
        """Return the error of a task that exceeded ``task_timeout``."""
        return TaskTimeout(f"{task!r} ran longer than task_timeout={self.task_timeout:g} s in pool {self.name!r}")

    @property
    def scale(self) -> Scale:
        """Limits of the number of workers."""
        return self.workers if isinstance(self.workers, Scale) else Scale(self.workers, self.workers)


def number(field: str, value: object, limit: limits.Limit) -> None:
    if not _is_number(value) or not limit.min <= value <= limit.max:  # type: ignore[operator]
        raise InvalidArgument(f"{field}: {value!r} is not allowed: give {limit.min:,} to {limit.max:,} {limit.unit}")


def seconds(field: str, value: object, limit: limits.Limit) -> None:
    low, high = limit.min / 1_000, limit.max / 1_000
    if not _is_number(value) or not low <= value <= high:  # type: ignore[operator]
        raise InvalidArgument(f"{field}: {value!r} is not allowed: give {low:g} to {high:,g} seconds, or None")


def instance(field: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kind):
        raise InvalidArgument(f"{field}: {value!r} is not allowed: give {expected}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
