"""Storage backend of streams, buckets and leases: a folder of this process, or that of the hub,
which serves it as a service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._binding import HeldLease, StreamHome, StreamWorker
    from tidewire.node import Node

SERVICE = "tidewire-streams"
"""Name of the service by which a node offers its data folder to the nodes that join it."""


class Home:
    """The calls of a storage backend, by name, with plain data; the same for a folder and a hub.

    Cancelling a call does not undo it. A cancelled wait for events or a lease ends, and returns
    untaken events and leases to the storage backend at once.

    Attributes:
        owner: The node that makes the calls.
    """

    __slots__ = ("_connect", "_folder", "is_remote", "owner")

    def __init__(
        self, owner: Node, folder: StreamHome | None = None, connect: Callable[[], Awaitable[StreamHome]] | None = None
    ) -> None:
        self.owner = owner
        self.is_remote = folder is None and connect is None
        self._folder = folder
        self._connect = connect

    def call(self, name: str, *args: Any) -> Awaitable[Any]:
        """Begin a call. Its error is raised here or when the call is awaited."""
        self.check()
        if self.is_remote and self._folder is None:
            self._folder = self.owner._hub_home()
        if self._folder is None:
            assert self._connect is not None
            return self._call_connected(self._connect, name, args)
        result: Awaitable[Any] = getattr(self._folder, name)(*args)
        return result

    def check(self) -> None:
        """Refuse calls to a hub after the stop of the node, and all calls in a forked child.

        Raises:
            NodeStopped: if the node has stopped. ForkedError in a forked child.
        """
        if self.is_remote:
            self.owner._check()
        else:
            self.owner._engine.check()

    def backend(self) -> StreamHome:
        """Return the storage backend. Only valid after a first call."""
        assert self._folder is not None
        return self._folder

    async def lease(self, name: str, holder: str, ttl_s: float, timeout_s: float | None, tied: bool) -> HeldLease:
        """Acquire a lease. Cancelled, it releases the lease."""
        acquired: HeldLease = await self.call("lease", self.owner._engine, name, holder, ttl_s, timeout_s, tied)
        return acquired

    def reader_options(self, title: str, raise_on_outage: bool) -> tuple[Any, ...]:
        """Return the first argument of calls that create a reader with this title."""
        from tidewire.streams.pages import outage_log

        self.check()
        return self.owner._engine, title, None if raise_on_outage else outage_log(title)

    def subscription(self, *args: Any) -> StreamWorker:
        """Start to handle the events of a consumer. Only valid after a first call."""
        return self.backend().subscription(self.owner._engine, *args)

    async def _call_connected(
        self, connect: Callable[[], Awaitable[StreamHome]], name: str, args: tuple[Any, ...]
    ) -> Any:
        self._folder = await connect()
        return await getattr(self._folder, name)(*args)


def span_us(field: str, seconds: float | None) -> int | None:
    """Return seconds as microseconds.

    Raises:
        InvalidArgument: if ``seconds`` is not a number from 0 on.
    """
    if seconds is None:
        return None
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds < 1e11:
        raise InvalidArgument(f"{field}: {seconds!r} is not allowed: give seconds from 0 on")
    return round(seconds * 1_000_000)


def time_of(time_us: int | None) -> datetime | None:
    """Return a time of the storage backend, in microseconds, as a datetime."""
    return None if time_us is None else datetime.fromtimestamp(time_us / 1_000_000, UTC)
