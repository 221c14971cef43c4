"""Futures of asyncio. A module of its own, as a program without asyncio shall not load it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewire.pools.pool import Pool
    from tidewire.pools.task import Task


class Submitted(asyncio.Future[Any]):
    """The outcome of one task. Cancelling it drops the task, unless a worker has begun it.

    Until it is there, it keeps the pool from being collected.
    """

    home: asyncio.AbstractEventLoop
    _task: Task
    _pool: Pool | None

    __slots__ = ("_pool", "_task", "home")

    def cancel(self, msg: Any = None) -> bool:
        pool, self._pool = self._pool, None
        cancelled = super().cancel(msg)
        if cancelled and pool is not None:
            pool._core.cancel([self._task])
        return cancelled

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        self._pool = None
        if self.done():
            return
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)


def submitted(pool: Pool, task: Task, loop: asyncio.AbstractEventLoop) -> Submitted:
    """Return the future of a task."""
    future = Submitted(loop=loop)
    future.home = loop
    future._pool = pool
    future._task = task
    task.answer = future
    return future


class Stopping(asyncio.Future[Any]):
    """The ledger of a pool, once it has stopped."""

    home: asyncio.AbstractEventLoop

    __slots__ = ("home",)

    def settle(self, key: int, error: BaseException | None, value: Any) -> None:
        if not self.done():
            self.set_result(value)


def stopping(loop: asyncio.AbstractEventLoop) -> Stopping:
    """Return a future for the end of a pool."""
    future = Stopping(loop=loop)
    future.home = loop
    return future
