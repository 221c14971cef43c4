"""Receivers of outcomes: a blocked caller, a map, or a future of an event loop.

An event loop is woken once for all outcomes of a burst.
"""

from __future__ import annotations

import _thread
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from tidewire.pools.task import Task, Unit

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Done = tuple[Unit, "BaseException | None", Any]
"""A task with its error or result, or a range with one error or a list of results."""


class Answer(Protocol):
    """Receiver of a task's outcome.

    Attributes:
        loop: Event loop for calls of ``settle``, or None for any thread.
        is_abandoned: True if the receiver discards outcomes.
        is_cancelled: True if workers must end the tasks of this receiver.
    """

    @property
    def loop(self) -> AbstractEventLoop | None: ...
    @property
    def is_abandoned(self) -> bool: ...
    @property
    def is_cancelled(self) -> bool: ...

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        """Receive an outcome. Called once per task; a cancelled receiver ignores it."""


def deliver(done: Iterable[Done]) -> None:
    """Deliver outcomes to their receivers. No lock may be held."""
    bursts: dict[AbstractEventLoop, list[tuple[Answer, int, BaseException | None, Any]]] = {}
    maps: dict[InFlightTasks, None] = {}
    for task, error, value in done:
        answer, task.answer = task.answer, None
        if answer is None:
            continue
        loop = answer.loop
        if loop is not None:
            burst = bursts.get(loop)
            if burst is None:
                burst = bursts[loop] = []
            burst.append((answer, task.key, error, value))
        elif isinstance(answer, InFlightTasks):
            maps[answer] = None
            if type(task) is Task or error is not None:
                answer.settle(task.key, error, value)
            else:
                answer.settle_range(task.key, value)
        else:
            answer.settle(task.key, error, value)
    for loop, burst in bursts.items():
        # A closed loop has no receiver left.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle_all, burst)
    for tasks in maps:
        tasks.notify()


def _settle_all(burst: list[tuple[Answer, int, BaseException | None, Any]]) -> None:
    for answer, key, error, value in burst:
        answer.settle(key, error, value)


class Blocked:
    """Receiver of one outcome for a blocked thread."""

    loop = None
    is_abandoned = is_cancelled = False
    __slots__ = ("_error", "_ready", "_value")

    def __init__(self) -> None:
        self._ready = _thread.allocate_lock()
        self._ready.acquire()
        self._error: BaseException | None = None
        self._value: Any = None

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        self._error, self._value = error, value
        self._ready.release()

    def wait(self, timeout: float | None = None) -> Any:
        """Block until the outcome. Raises TimeoutError if there is none in time."""
        if not self._ready.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value


class Failed:
    """Error among the results of tasks."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class InFlightTasks:
    """Tasks of a map in flight. Their outcomes arrive in any order, and are consumed in order."""

    loop = None

    def __init__(self) -> None:
        self.is_abandoned = self.is_cancelled = False
        # Consecutive results, or an error, by the key of the first task.
        self._results: dict[int, list[Any] | Failed] = {}
        self._next = 0
        self._lock = _thread.allocate_lock()
        self._wake: Any = None

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        self._results[key] = [value] if error is None else Failed(error)

    def settle_range(self, key: int, values: list[Any]) -> None:
        """Receive the results of consecutive tasks."""
        self._results[key] = values

    def notify(self) -> None:
        """Wake the waiter if the next result is available."""
        with self._lock:
            wake = None
            if self._next in self._results:
                wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def take(self) -> list[Any] | None:
        """Return the next results, or None if the next one is not available. Raises the error of a
        failed task.
        """
        results = self._results.pop(self._next, None)
        if isinstance(results, Failed):
            raise results.error
        if results is not None:
            self._next += len(results)
        return results

    def wait(self, wake: Any) -> bool:
        """Register ``wake``, which is called once when the next result is available. Return False
        if it is available already.
        """
        with self._lock:
            if self._next in self._results:
                return False
            self._wake = wake
            return True
