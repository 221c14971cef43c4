"""Something that is opened once, when it is first needed, whoever needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Opening(Generic[_T]):
    """An opening that all callers share. It goes on if a caller is cancelled, and is tried again by
    the next caller after a failure.

    Args:
        open: Opens it.
    """

    __slots__ = ("_is_open", "_open", "_opening", "_value")

    def __init__(self, open: Callable[[], Awaitable[_T]]) -> None:
        self._open = open
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._value: _T

    @property
    def value(self) -> _T:
        """The result; once it was opened."""
        return self._value

    async def get(self) -> _T:
        """Return the result, and wait for it if need be. Raises the error of the opening."""
        while not self._is_open:
            loop = asyncio.get_running_loop()
            if self._opening is None or self._opening.get_loop() is not loop:
                # Not in the context of this caller: its deadline is not that of the others.
                self._opening = Context().run(loop.create_task, self._run())
                self._opening.add_done_callback(self._ended)
            await asyncio.shield(self._opening)
        return self._value

    async def _run(self) -> None:
        self._value = await self._open()
        self._is_open = True

    def _ended(self, opening: asyncio.Task[None]) -> None:
        if self._opening is opening:
            self._opening = None
        if not opening.cancelled():
            # Nobody may wait for its error any more.
            opening.exception()
