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
"""A task with its error, or None and its result; a range with one error, or a list of results."""


class Answer(Protocol):
    """The receiver of a task's result.

    Attributes:
        home: The event loop on which ``settle`` must be called, or None for any thread.
        is_abandoned: Nobody waits for results any more.
        is_cancelled: Workers are to end the tasks of this receiver.
    """

    @property
    def home(self) -> AbstractEventLoop | None: ...
    @property
    def is_abandoned(self) -> bool: ...
    @property
    def is_cancelled(self) -> bool: ...

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        """Take an outcome. Called once for each task; an answer that has been cancelled ignores
        it.
        """


def deliver(done: Iterable[Done]) -> None:
    """Hand outcomes to those who wait for them. No lock may be held."""
    bursts: dict[AbstractEventLoop, list[tuple[Answer, int, BaseException | None, Any]]] = {}
    flights: dict[InFlightTasks, None] = {}
    for task, error, value in done:
        answer, task.answer = task.answer, None
        if answer is None:
            continue
        home = answer.home
        if home is not None:
            burst = bursts.get(home)
            if burst is None:
                burst = bursts[home] = []
            burst.append((answer, task.key, error, value))
        elif isinstance(answer, InFlightTasks):
            flights[answer] = None
            if type(task) is Task or error is not None:
                answer.settle(task.key, error, value)
            else:
                answer.settle_range(task.key, value)
        else:
            answer.settle(task.key, error, value)
    for home, burst in bursts.items():
        # A loop that was closed has nobody who waits.
        with contextlib.suppress(RuntimeError):
            home.call_soon_threadsafe(_settle_all, burst)
    for flight in flights:
        flight.notify()


def _settle_all(burst: list[tuple[Answer, int, BaseException | None, Any]]) -> None:
    for answer, key, error, value in burst:
        answer.settle(key, error, value)


class Blocked:
    """A thread that waits for one outcome."""

    home = None
    is_abandoned = is_cancelled = False
    __slots__ = ("_error", "_gate", "_value")

    def __init__(self) -> None:
        self._gate = _thread.allocate_lock()
        self._gate.acquire()
        self._error: BaseException | None = None
        self._value: Any = None

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        self._error, self._value = error, value
        self._gate.release()

    def wait(self, timeout: float | None = None) -> Any:
        """Block until the outcome is there. Raises TimeoutError if it is not there in time."""
        if not self._gate.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value


class Failed:
    """An error among the results of tasks."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class InFlightTasks:
    """Tasks of a map that are under way. Their outcomes come in any order, and are taken in
    order.
    """

    home = None

    def __init__(self) -> None:
        self.is_abandoned = self.is_cancelled = False
        # Results that follow one another, or an error, by the key of the first.
        self._results: dict[int, list[Any] | Failed] = {}
        self._next = 0
        self._lock = _thread.allocate_lock()
        self._wake: Any = None

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        self._results[key] = [value] if error is None else Failed(error)

    def settle_range(self, key: int, values: list[Any]) -> None:
        """Take the results of tasks that follow one another."""
        self._results[key] = values

    def notify(self) -> None:
        """Wake the waiter, if the next result is there."""
        with self._lock:
            wake = None
            if self._next in self._results:
                wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def take(self) -> list[Any] | None:
        """Return the results that are next, or None if the next one is not there. Raises the error
        of a task that failed.
        """
        results = self._results.pop(self._next, None)
        if isinstance(results, Failed):
            raise results.error
        if results is not None:
            self._next += len(results)
        return results

    def wait(self, wake: Any) -> bool:
        """Ask for a call of ``wake`` once the next result is there. False means that it is there
        already.
        """
        with self._lock:
            if self._next in self._results:
                return False
            self._wake = wake
            return True
