"""Outages of a storage backend: the pauses between attempts, and calls that wait for the end of an
outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from tidewire._log import log
from tidewire.errors import HomeUnavailable, TidewireError

if TYPE_CHECKING:
    from tidewire.node import Node
    from tidewire.streams.home import Home

_T = TypeVar("_T")

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0
_GRACE_S = 1.0
"""How long a call may take beyond its own limit of time before it is cancelled."""


class RetryPause:
    """Pauses between attempts at a storage backend that is away: they grow from 50 ms to 2 s, and a
    hub that is back ends them early.

    Args:
        node: The node whose hub it is; None without a hub.
    """

    __slots__ = ("_node", "_wait_s")

    def __init__(self, node: Node | None) -> None:
        self._node = node
        self._wait_s = 0.0

    @property
    def has_begun(self) -> bool:
        """True if the last attempt failed."""
        return self._wait_s > 0.0

    def end(self) -> None:
        """Note that an attempt succeeded."""
        self._wait_s = 0.0

    async def wait(self, most_s: float = _LONGEST_WAIT_S) -> None:
        """Wait until the next attempt, or for so many seconds."""
        self._wait_s = min(max(_FIRST_WAIT_S, 2 * self._wait_s), _LONGEST_WAIT_S)
        wait_s = min(self._wait_s, most_s)
        if self._node is None:
            await asyncio.sleep(wait_s)
            return
        from tidewire.services.registry import registry_of

        registry = registry_of(self._node)
        # A link that is back changes the registry.
        await registry.pause(wait_s, registry.change_counter.count)


class Outage:
    """Calls of one consumer, watch or replay that wait for the end of an outage. The outage is
    logged once when it begins, and once when it is over.

    Args:
        home: The storage backend.
        title: The consumer, watch or replay, for the log.
    """

    __slots__ = ("_home", "_pause", "_since", "_title")

    def __init__(self, home: Home, title: str) -> None:
        self._home = home
        self._title = title
        self._pause = RetryPause(home.node)
        self._since = 0.0

    @property
    def wait_us(self) -> int:
        """How long one call waits for something at most: not at all while it is to show that the
        outage is over.
        """
        return 0 if self._pause.has_begun else self._home.wait_us

    async def outlast(self, call: Callable[[], Awaitable[_T]], until: float | None = None) -> _T | None:
        """Make a call, again after each attempt that an outage has ended.

        Cancelled, it cancels the call. The call stores its result itself, so that none is lost.

        Args:
            call: Begins the call.
            until: When to return None at the latest, on the clock of ``time.monotonic()``.
        """
        while True:
            try:
                if until is None:
                    found = await call()
                else:
                    calling = asyncio.ensure_future(call())
                    if not await _ended(calling, until):
                        return None
                    found = calling.result()
            except TidewireError as error:
                self._home.owner._check()
                if not isinstance(error, HomeUnavailable):
                    raise
                if not self._pause.has_begun:
                    self._since = monotonic()
                    text = "%(title)s waits: its storage backend is away: %(error)s"
                    log.warning("home.away", text, title=self._title, error=error)
                if until is None:
                    await self._pause.wait()
                elif (left_s := until - monotonic()) > 0:
                    await self._pause.wait(left_s)
                else:
                    return None
            else:
                if self._pause.has_begun:
                    self._pause.end()
                    text = "%(title)s goes on: its storage backend was away for %(seconds).1f s"
                    log.info("home.back", text, title=self._title, seconds=monotonic() - self._since)
                return found


async def _ended(calling: asyncio.Future[_T], until: float) -> bool:
    """Wait for a call that ends by itself in time, unless its storage backend is away. Return
    whether it has ended; it is cancelled if not.
    """
    # Nobody may be there any more when it fails.
    calling.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
    try:
        await asyncio.wait({calling}, timeout=max(0.0, until - monotonic()) + _GRACE_S)
        return calling.done()
    finally:
        calling.cancel()
