"""Storage backend of streams, buckets and leases: a folder of this process, or the hub, which
serves its own as a service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidewire._binding import StreamHome, home_error
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._binding import HeldLease, StreamWorker
    from tidewire.node import Node

SERVICE = "tidewire-streams"
"""The name under which a node with a data folder serves it to those that join it."""

WAIT_US = 4_000_000
"""How long one call waits for something at most; then it is called again. Less than the timeout of
a call over a link.
"""
LONG_WAIT_US = 600_000_000
"""The same where the end of the wait is heard of: in a folder of this process, and at a hub, which
ends it when its link is lost or it stops. Who only waits does not wake up."""


class Home:
    """The calls of a storage backend, by name, with plain data; the same for a folder and a hub.

    Cancelling a call that was begun does not take it back. A cancelled wait for events or a lease
    ends, and its storage backend has at once what nobody has taken.

    Attributes:
        owner: The node that makes the calls.
    """

    __slots__ = ("_connect", "_folder", "_is_here", "is_remote", "owner")

    def __init__(
        self,
        owner: Node,
        folder: StreamHome | None = None,
        connect: Callable[[], Awaitable[StreamHome]] | None = None,
        is_here: bool = False,
    ) -> None:
        self.owner = owner
        self.is_remote = folder is None and connect is None
        self._folder = folder
        self._connect = connect
        self._is_here = is_here

    def call(self, name: str, *args: Any) -> Awaitable[Any]:
        """Begin a call: an error of it is raised where it is awaited, or here."""
        # A node that stops gives back what it has.
        if name != "settle" or self.owner.ledger is not None or self.owner._engine.is_past:
            self.check()
        if self.is_remote and self._folder is None:
            self._folder = self.owner._hub_home()
        if self._folder is None:
            assert self._connect is not None
            return self._call_connected(self._connect, name, args)
        begun: Awaitable[Any] = getattr(self._folder, name)(*args)
        return begun

    def check(self) -> None:
        """Refuse calls to a hub when the node has stopped.

        Raises:
            NodeStopped: if it has.
        """
        if self.is_remote:
            self.owner._check()

    def begun(self) -> StreamHome:
        """Return the storage backend, after a call was made."""
        assert self._folder is not None
        return self._folder

    @property
    def node(self) -> Node | None:
        """The node whose hub has the home; None for a folder and for NATS."""
        return self.owner if self.is_remote else None

    @property
    def wait_us(self) -> int:
        """How long one call waits for something at most."""
        return LONG_WAIT_US if self._is_here or self.is_remote else WAIT_US

    async def lease(self, name: str, holder: str, ttl_s: float, timeout_s: float | None, tied: bool) -> HeldLease:
        """Acquire a lease. Cancelled, it is not held."""
        acquired: HeldLease = await self.call("lease", self.owner._engine, name, holder, ttl_s, timeout_s, tied)
        return acquired

    def subscription(self, *args: Any) -> StreamWorker:
        """Begin to handle the events of a consumer. A call was made before."""
        return self.begun().subscription(self.owner._engine, *args)

    async def _call_connected(
        self, connect: Callable[[], Awaitable[StreamHome]], name: str, args: tuple[Any, ...]
    ) -> Any:
        self._folder = await connect()
        return await getattr(self._folder, name)(*args)


def refused(item: Any) -> BaseException | None:
    """Return the error that stands in the place of one result of a batch, if there is one."""
    if isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str):
        error: BaseException = home_error(item[0], item[1])
        return error
    return None


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
