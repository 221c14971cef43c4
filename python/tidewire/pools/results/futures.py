"""Futures of asyncio. Only programs with asyncio load this module."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewire.pools.pool import Pool
    from tidewire.pools.task import Task


class Submitted(asyncio.Future[Any]):
    """Future of one task. Cancelling it cancels the task.

    It keeps the pool alive until the outcome.
    """

    loop: asyncio.AbstractEventLoop
    is_abandoned = is_cancelled = False
    _task: Task
    _pool: Pool | None

    __slots__ = ("_pool", "_task", "loop")

    def cancel(self, msg: Any = None) -> bool:
        pool, self._pool = self._pool, None
        cancelled = super().cancel(msg)
        if cancelled and pool is not None:
            pool._core.cancel(self._task)
        return cancelled

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        self._pool = None
        if self.done():
            return
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)

    def listener(self, call: Callable[[float, str], Any]) -> Callable[[float, str], None]:
        """Return a listener for any thread, which passes the newest report to the event loop."""
        context, newest, is_delivered = copy_context(), (0.0, ""), True

        def deliver() -> None:
            nonlocal is_delivered
            # Set first, so that a concurrent report is delivered later.
            is_delivered = True
            if not self.done():
                call(*newest)

        def report(fraction: float, note: str) -> None:
            nonlocal newest, is_delivered
            newest = (fraction, note)
            if is_delivered:
                is_delivered = False
                with suppress(RuntimeError):
                    self.loop.call_soon_threadsafe(deliver, context=context)

        return report


def submitted(pool: Pool, task: Task, loop: asyncio.AbstractEventLoop) -> Submitted:
    """Return the future of a task."""
    future = Submission(loop=loop)
    future.loop = loop
    future._pool = pool
    future._task = task
    task.answer = future
    return future


_blocking: Any = asyncio.Future.__dict__["_asyncio_future_blocking"]


class Submission(Submitted):
    """Future that also has the coroutine protocol until its first use as a future."""

    __slots__ = ()

    def send(self, value: Any) -> Any:
        """Resume, as a coroutine."""
        if self.done():
            raise StopIteration(self.result())
        _blocking.__set__(self, True)
        return self

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        """Raise an error at the await, as a coroutine."""
        self.cancel()
        raise error if value is None else value

    def close(self) -> None:
        """Cancel the task, as a coroutine."""
        self.cancel()

    def __hash__(self) -> int:
        # asyncio.wait builds a set of its arguments, and then refuses coroutines.
        self.__class__ = Submitted  # type: ignore[assignment]
        return object.__hash__(self)

    @property
    def _asyncio_future_blocking(self) -> bool:
        # asyncio reads this to detect a future, and while a task waits for it.
        blocking: bool = _blocking.__get__(self)
        if not blocking:
            self.__class__ = Submitted  # type: ignore[assignment]
        return blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, blocking: bool) -> None:
        _blocking.__set__(self, blocking)
