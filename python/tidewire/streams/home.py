"""Storage backend of streams, buckets and leases: a folder of this process, or the hub, which
serves its own as a service.
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
"""The name under which a node with a data folder serves it to those that join it."""


class Home:
    """The calls of a storage backend, by name, with plain data; the same for a folder and a hub.

    Cancelling a call that was begun does not take it back. A cancelled wait for events or a lease
    ends, and its storage backend has at once what nobody has taken.

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
        """Begin a call: an error of it is raised where it is awaited, or here."""
        self.check()
        if self.is_remote and self._folder is None:
            self._folder = self.owner._hub_home()
        if self._folder is None:
            assert self._connect is not None
            return self._call_connected(self._connect, name, args)
        begun: Awaitable[Any] = getattr(self._folder, name)(*args)
        return begun

    def check(self) -> None:
        """Refuse calls to a hub when the node has stopped, and all calls in the child of a fork.

        Raises:
            NodeStopped: if it has. ForkedError if the node is the parent's.
        """
        if self.is_remote:
            self.owner._check()
        else:
            self.owner._engine.check()

    def begun(self) -> StreamHome:
        """Return the storage backend, after a call was made."""
        assert self._folder is not None
        return self._folder

    async def lease(self, name: str, holder: str, ttl_s: float, timeout_s: float | None, tied: bool) -> HeldLease:
        """Acquire a lease. Cancelled, it is not held."""
        acquired: HeldLease = await self.call("lease", self.owner._engine, name, holder, ttl_s, timeout_s, tied)
        return acquired

    def reads(self, title: str, raise_on_outage: bool) -> tuple[Any, ...]:
        """Return the first argument of a call that makes a reader with this title."""
        from tidewire.streams.pages import outage_log

        self.check()
        return self.owner._engine, title, None if raise_on_outage else outage_log(title)

    def subscription(self, *args: Any) -> StreamWorker:
        """Begin to handle the events of a consumer. A call was made before."""
        return self.begun().subscription(self.owner._engine, *args)

    async def _call_connected(
        self, connect: Callable[[], Awaitable[StreamHome]], name: str, args: tuple[Any, ...]
    ) -> Any:
        self._folder = await connect()
        return await getattr(self._folder, name)(*args)


def span_us(field: str, seconds: float | None) -> int | None:
    """Return seconds as microseconds.

    Raises:
        InvalidArgument: if it is no number of seconds from 0 on.
    """
    if seconds is None:
        return None
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds < 1e11:
        raise InvalidArgument(f"{field}: {seconds!r} is not allowed: give seconds from 0 on")
    return round(seconds * 1_000_000)


def time_of(time_us: int | None) -> datetime | None:
    """Return a time of the storage backend."""
    return None if time_us is None else datetime.fromtimestamp(time_us / 1_000_000, UTC)
