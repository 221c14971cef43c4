"""Receivers of outcomes: a blocked caller, a map, or a future of an event loop.

An event loop is woken once for all outcomes of a burst.
"""

from __future__ import annotations

import _thread
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from tidewire.pools.task import Task

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Done = tuple[Task, "BaseException | None", Any]
"""A task with its error, or None and its result."""


class Answer(Protocol):
    """The receiver of a task's result. ``home`` is the event loop on which ``settle`` must be
    called, or None for any thread.
    """

    @property
    def home(self) -> AbstractEventLoop | None: ...

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
        else:
            answer.settle(task.key, error, value)
            if isinstance(answer, InFlightTasks):
                flights[answer] = None
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
    """An error among the results of a map."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class InFlightTasks:
    """Tasks of a map that are under way. Their outcomes come in any order, and are taken in
    order.
    """

    home = None

    def __init__(self) -> None:
        self._results: dict[int, Any] = {}
        self._next = 0
        self._lock = _thread.allocate_lock()
        self._wake: Any = None

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        self._results[key] = value if error is None else Failed(error)

    def notify(self) -> None:
        """Wake the waiter, if the next result is there."""
        with self._lock:
            wake = None
            if self._next in self._results:
                wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def take(self) -> list[Any]:
        """Return the results that are there without a gap."""
        taken: list[Any] = []
        results, following = self._results, self._next
        while following in results:
            taken.append(results.pop(following))
            following += 1
        self._next = following
        return taken

    def wait(self, wake: Any) -> bool:
        """Ask for a call of ``wake`` once the next result is there. False means that it is there
        already.
        """
        with self._lock:
            if self._next in self._results:
                return False
            self._wake = wake
            return True
