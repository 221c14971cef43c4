"""Channel between the writer and the reader of a stream, on any two loops or threads.

The writer is at most ``ahead`` items ahead. Then it pauses until the reader has taken half of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from tidewire._runtime.steps import Steps
from tidewire._runtime.waiter import Waiter
from tidewire.errors import AskTimeout

if TYPE_CHECKING:
    from tidewire.links.call_channel import CallChannel


class Ended(Exception):
    """The stream has ended. Only blocking readers see it: StopIteration can't leave a generator."""


class Channel:
    """A bounded queue with an end.

    Args:
        title: Name of the stream in error messages.
        ahead: Most items that the writer is ahead: ``stream_ahead`` of its node.
        deadline: Deadline of the stream, on the clock of ``time.monotonic()``, or None.
    """

    def __init__(self, title: str, ahead: int, deadline: float | None = None) -> None:
        self.title = title
        self.ahead = ahead
        self.deadline = deadline
        # The lock protects all below. A stream that is collected while this thread holds the lock
        # takes it again.
        self._lock = threading.RLock()
        self._items: deque[Any] = deque()
        self._readers: list[Waiter] = []
        self._resume: Callable[[], None] | None = None
        self._over = self._closed = False
        self._error: BaseException | None = None
        self._end_waiters: list[Waiter] = []
        self.written = 0
        self.on_close: Callable[[], None] | None = None
        """Called on any thread when the reader has left and the writer has not ended."""

    # The writer's side

    @property
    def closed(self) -> bool:
        """True if the reader has left."""
        return self._closed

    def put(self, item: Any) -> bool:
        """Append an item, and return whether there is capacity for more. The writer pauses while
        there is none.
        """
        with self._lock:
            self._items.append(item)
            self.written += 1
            has_capacity = len(self._items) < self.ahead and not self._closed
            readers = self._take_readers()
        for reader in readers:
            reader.wake()
        return has_capacity

    async def wait_for_capacity(self) -> bool:
        """Wait for capacity. Return False if the reader has left."""
        waiter = Waiter()
        if not self.park(waiter.wake):
            await waiter
        return not self._closed

    def park(self, resume: Callable[[], None]) -> bool:
        """Return True if there is capacity, or the reader has left. Else ``resume`` is called once
        when that is so.
        """
        with self._lock:
            if self._closed or len(self._items) < self.ahead:
                return True
            self._resume = resume
            return False

    def unpark(self) -> None:
        """Resume the writer without capacity: it was cancelled, or its reader has left."""
        with self._lock:
            resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def end(self, error: BaseException | None) -> None:
        """End the stream, with an error if it has failed."""
        with self._lock:
            if self._over:
                return
            self._over, self._error = True, error
            waiters = [*self._take_readers(), *self._end_waiters]
            self._end_waiters.clear()
        for waiter in waiters:
            waiter.wake()

    # The reader's side

    async def take(self) -> Any:
        """Return the next item.

        Raises:
            StopAsyncIteration: if the stream has ended.
            AskTimeout: if its deadline has passed.
            BaseException: the error of the writer, after the items before it.
        """
        while True:
            waiter, item = self._next()
            if waiter is None:
                return item
            waiter.left_s = self._left_s()
            await waiter

    def take_blocking(self) -> Any:
        """Return the next item, and block this thread until there is one. Raises as ``take``, with
        ``Ended`` at the end.
        """
        while True:
            try:
                waiter, item = self._next()
            except StopAsyncIteration:
                raise Ended from None
            if waiter is None:
                return item
            waiter.left_s = self._left_s()
            waiter.wait()

    def close(self) -> bool:
        """End the reading, and drop the items that were not read. Return True if the writer had not
        ended.
        """
        with self._lock:
            is_open = not self._over
            self._closed = True
            self._items.clear()
            readers = self._take_readers()
        self.unpark()
        for reader in readers:
            reader.wake()
        if is_open and self.on_close is not None:
            self.on_close()
        return is_open

    def over(self) -> Steps[None]:
        """End the reading, and wait until the writer has ended."""
        self.close()
        if (waiter := self._end_waiter()) is not None:
            yield waiter

    def _next(self) -> tuple[Waiter | None, Any]:
        """Return an item, or the waiter for one."""
        resume = None
        with self._lock:
            if self._items:
                item = self._items.popleft()
                if self._resume is not None and len(self._items) <= self.ahead // 2:
                    resume, self._resume = self._resume, None
                waiter = None
            else:
                self._raise_if_over()
                waiter, item = Waiter(), None
                # Readers whose wait was cancelled leave with the next one.
                self._readers = [reader for reader in self._readers if reader.is_waiting]
                self._readers.append(waiter)
        if resume is not None:
            resume()
        return waiter, item

    def _take_readers(self) -> list[Waiter]:
        readers = self._readers
        if readers:
            self._readers = []
        return readers

    def _raise_if_over(self) -> None:
        if self._over:
            # The error is raised once, as by a generator: later reads find the end.
            error, self._error = self._error, None
            if error is not None and not self._closed:
                raise error
        if self._over or self._closed:
            raise StopAsyncIteration
        if self.deadline is not None and monotonic() >= self.deadline:
            raise AskTimeout(f"{self.title}: the stream's time is up: give it more with with_(timeout=...)")

    def _end_waiter(self) -> Waiter | None:
        with self._lock:
            if self._over:
                return None
            waiter = Waiter()
            self._end_waiters.append(waiter)
            return waiter

    def _left_s(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - monotonic())


class Writer(Protocol):
    """The writer of a channel: it is cancelled when its reader has left.

    Attributes:
        cancelled: True if it was cancelled.
        closing: True if it closes its source. The channel waits for that and does not
            interrupt.
    """

    cancelled: bool
    closing: bool


async def pump(items: Any, channel: Channel | CallChannel, writer: Writer) -> None:
    """Move the items of an asynchronous iterator into a channel until either ends, and close the
    iterator.
    """
    try:
        async for item in items:
            if (not channel.put(item) and not await channel.wait_for_capacity()) or writer.cancelled:
                break
    finally:
        writer.closing = True
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
