"""Lazy opening of a shared value, once for all callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Opening(Generic[_T]):
    """Opening of a value that all callers share. It continues if a caller is cancelled. After a
    failure the next caller retries it.

    Args:
        open: Opens the value.
    """

    __slots__ = ("_is_open", "_open", "_opening", "_value")

    def __init__(self, open: Callable[[], Awaitable[_T]]) -> None:
        self._open = open
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._value: _T

    @property
    def value(self) -> _T:
        """The opened value. Only valid after ``get``."""
        return self._value

    async def get(self) -> _T:
        """Wait until the value is open, and return it. Raises the error of the opening."""
        while not self._is_open:
            loop = asyncio.get_running_loop()
            if self._opening is None or self._opening.get_loop() is not loop:
                # In a context of its own: the deadline of this caller must not apply to the others.
                self._opening = Context().run(loop.create_task, self._run())
                self._opening.add_done_callback(self._finish)
            await asyncio.shield(self._opening)
        return self._value

    async def _run(self) -> None:
        self._value = await self._open()
        self._is_open = True

    def _finish(self, opening: asyncio.Task[None]) -> None:
        if self._opening is opening:
            self._opening = None
        if not opening.cancelled():
            # Retrieved, since all callers may have left.
            opening.exception()
