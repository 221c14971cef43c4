"""The consumers of a node, which end with it: their waits end, and what nobody has begun goes
back.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewire.streams.consumer import Consumer

_LONGEST_S = 3.0
"""How long the end of a node waits for a storage backend that does not answer."""
_GRACE_S = 1.0
"""How long it waits if the time of the end is over."""


class OpenConsumers:
    """The consumers of a node.

    Attributes:
        holding: Those with events that nobody has begun. They are kept until these events are back,
            although the program may have released them.
    """

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self.holding: set[Consumer] = set()

    def add(self, consumer: Consumer) -> None:
        """Note a consumer."""
        self._all.add(consumer)

    def end(self) -> list[LoopWork]:
        """Begin to end all of them, and return what to wait for."""
        consumers, self._all = list(self._all), weakref.WeakSet()
        for consumer in consumers:
            consumer._has_ended = True
        ending = [(consumer._loop, consumer._end()) for consumer in consumers if consumer._is_open]
        self.holding.clear()
        return [LoopWork(loop, end) for loop, end in ending]


class LoopWork:
    """Work on an event loop that may be another one, for ``Steps``. Its errors are those of a
    storage backend that is away: what could not be given back comes again after its ack wait.

    Args:
        loop: Where it runs. Nothing is done if that loop does not run.
        work: The work.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
        self._until = monotonic() + _LONGEST_S
        self._done: Future[None] | None = None
        if loop.is_running():
            self._done = asyncio.run_coroutine_threadsafe(work, loop)
        else:
            work.close()

    def within(self, left_s: float | None) -> LoopWork:
        """Wait for it for so many seconds at most, or for one second if less is left."""
        if left_s is not None:
            self._until = min(self._until, monotonic() + max(left_s, _GRACE_S))
        return self

    def __await__(self) -> Generator[Any, Any, None]:
        if self._done is not None:
            yield from asyncio.wait({asyncio.wrap_future(self._done)}, timeout=self._left_s()).__await__()

    def wait(self) -> None:
        """Block this thread until it is done."""
        from concurrent.futures import wait

        if self._done is not None:
            wait([self._done], self._left_s())

    def _left_s(self) -> float:
        return max(0.0, self._until - monotonic())
