"""Channel from a stream's generator to its caller on another node."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidewire._runtime.waiter import Waiter

if TYPE_CHECKING:
    from tidewire._binding import Pending, RemoteCall
    from tidewire.services.instance_transport import Request


class CallChannel:
    """Writer's side of a ``Channel`` with a reader on another node. Items are sent at once, within
    the credit of the reader.

    Args:
        call: The call that reads the stream.
        request: The request of the call.
        give: Returns the reference of a function or an object in an item, for a node.
        fail: Replies to a call with an error.
    """

    def __init__(
        self,
        call: RemoteCall,
        request: Request,
        give: Callable[[str, Any], Any],
        fail: Callable[[RemoteCall, BaseException], None],
    ) -> None:
        self._request = request
        self._call, self._give, self._fail = call, functools.partial(give, request.node), fail
        self._pause: Pending | None = None
        self._loop = asyncio.get_running_loop()
        self._end_waiter: Waiter | None = None
        self._over = False

    @property
    def title(self) -> str:
        """Name of the stream in error messages."""
        return self._request.title

    @property
    def closed(self) -> bool:
        """True if the reader has left, or waits for the end."""
        return self._call.unread

    def put(self, item: Any) -> bool:
        """Send an item, and return True if there is credit for more."""
        self._pause = self._call.item(item, self._give)
        return self._pause is None

    async def wait_for_capacity(self) -> bool:
        """Wait for credit. Return False if the reader has left."""
        pause, self._pause = self._pause, None
        return (pause is None or await pause) and not self._call.unread

    def park(self, resume: Callable[[], None]) -> bool:
        """Return True if there is credit. Else ``resume`` is called once when there is, or the
        reader has left.
        """
        pause, self._pause = self._pause, None
        if pause is not None:
            self._loop.call_soon_threadsafe(pause.add_done_callback, lambda _: resume())
        return pause is None

    def unpark(self) -> None:
        """Resume the writer without credit: it was cancelled, or its reader has left."""
        self._call.cut()

    def end(self, error: BaseException | None) -> None:
        """End the stream, with an error if it has failed."""
        if self._over:
            return
        self._over = True
        if error is None or self._call.unread:
            self._call.over()
        else:
            self._fail(self._call, error)
        if self._end_waiter is not None:
            self._end_waiter.wake()

    def close(self) -> bool:
        """End the reading. Return True if the writer had not ended."""
        return not self._over

    async def ended(self) -> None:
        """Wait until the writer has ended."""
        waiter = self._end_waiter = Waiter()
        # The writer checks for a waiter at its end.
        if not self._over:
            await waiter
