"""Procedures that wait for several things, written once for coroutines and for plain threads.

Such a procedure is a generator of what it waits for: pending operations, each with ``await`` and
``wait()``. It gets their results, and their errors are raised in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")


class WaitFor(Awaitable[Any], Protocol):
    """Awaitable step of a procedure."""

    def wait(self) -> Any:
        """Block this thread until it is there."""


Steps = Generator[WaitFor, Any, _T]


async def awaited(steps: Steps[_T]) -> _T:
    """Run a procedure in a task. Its wait that is cancelled raises ``CancelledError`` in it."""
    go_on: Callable[[Any], WaitFor] = steps.send
    given: Any = None
    while True:
        try:
            waits = go_on(given)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            go_on, given = steps.send, await waits
        except BaseException as error:  # noqa: BLE001 - it is raised where it was waited for
            go_on, given = steps.throw, error


def blocking(steps: Steps[_T]) -> _T:
    """Run a procedure, and block this thread meanwhile."""
    go_on: Callable[[Any], WaitFor] = steps.send
    given: Any = None
    while True:
        try:
            waits = go_on(given)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            go_on, given = steps.send, waits.wait()
        except BaseException as error:  # noqa: BLE001 - it is raised where it was waited for
            go_on, given = steps.throw, error
