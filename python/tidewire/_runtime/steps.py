"""Procedures with several waits, written once for coroutines and plain threads.

A procedure is a generator of pending operations, each with ``await`` and ``wait()``. It receives
their results, and their errors are raised in it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Generator
from typing import Any, Generic, Protocol, TypeVar

_T = TypeVar("_T")


class WaitFor(Awaitable[Any], Protocol):
    """Awaitable step of a procedure."""

    def wait(self) -> Any:
        """Block this thread until the result is available."""


Steps = Generator[WaitFor, Any, _T]


class awaited(Generic[_T]):
    """Run a procedure in a task. A cancelled wait raises ``CancelledError`` in the procedure."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Steps[_T]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, _T]:
        return awaiting(self._steps)


def awaiting(steps: Steps[_T]) -> Generator[Any, Any, _T]:
    """Run a procedure as an ``__await__``."""
    try:
        pending = next(steps)
        while True:
            try:
                result = yield from pending.__await__()
            except BaseException as error:  # noqa: BLE001 - it is raised where it was waited for
                # The traceback keeps this frame.
                del pending
                pending = steps.throw(error)
            else:
                pending = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def blocking(steps: Steps[_T]) -> _T:
    """Run a procedure, and block this thread meanwhile."""
    try:
        pending = next(steps)
        while True:
            try:
                result = pending.wait()
            except BaseException as error:  # noqa: BLE001 - it is raised where it was waited for
                del pending
                pending = steps.throw(error)
            else:
                pending = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class Procedure(Generic[_T]):
    """A procedure for tasks and plain threads."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, _T]:
        return awaiting(self._steps())

    def wait(self) -> _T:
        """Block this thread until it is done."""
        return blocking(self._steps())

    @abstractmethod
    def _steps(self) -> Steps[_T]:
        """Return the steps of the procedure, which starts with the first step."""
