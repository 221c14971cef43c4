"""Storage backend of streams, buckets and leases: a folder of this process, or the hub, which
serves its own as a service.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidewire._binding import StreamHome, home_error
from tidewire.errors import (
    InvalidArgument,
    TidewireError,
)

if TYPE_CHECKING:
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
_WAITS = frozenset(["fetch", "read", "watch", "acquire"])
_WAIT_MARGIN_S = 30.0
_LAST = frozenset(["end_wait", "settle"])
"""The calls that a node makes while it stops: it gives back what it has."""


class Wait:
    """A call under way that waits for events.

    Attributes:
        begun: The operation.
        token: Which wait of the hub it is.
        is_ended: True if ``Home.end_wait`` has ended it.
    """

    __slots__ = ("begun", "is_ended", "token")

    def __init__(self) -> None:
        self.begun: Any = None
        self.token = 0
        self.is_ended = False


class Home:
    """The calls of a storage backend, by name, with plain data; the same for a folder and a hub.

    Cancelling a call that was begun does not take it back.

    Attributes:
        owner: The node that makes the calls.
    """

    __slots__ = ("_client", "_connect", "_folder", "_is_here", "_returning", "owner")

    def __init__(
        self,
        owner: Node,
        folder: StreamHome | None = None,
        connect: Callable[[], Awaitable[StreamHome]] | None = None,
        is_here: bool = False,
    ) -> None:
        self.owner = owner
        self._folder = folder
        self._connect = connect
        self._is_here = is_here
        self._client: Any = None
        # Tasks that give back results whose callers were cancelled.
        self._returning: set[asyncio.Task[None]] = set()

    def call(self, name: str, *args: Any) -> Awaitable[Any]:
        """Begin a call: an error of it is raised where it is awaited, or here."""
        if self._folder is not None:
            begun: Awaitable[Any] = getattr(self._folder, name)(*args)
            return begun
        if self._connect is not None:
            return self._call_connected(self._connect, name, args)
        if self._client is None:
            self._client = self.owner.client(SERVICE)
        client = self._client
        if name not in _LAST or self.owner.ledger is not None:
            self.owner._check()
        if name in _WAITS:
            client = client.with_(timeout=LONG_WAIT_US / 1_000_000 + _WAIT_MARGIN_S)
        answer: Awaitable[Any] = client.call(name, list(args))
        return answer

    @property
    def node(self) -> Node | None:
        """The node whose hub has the home; None for a folder and for NATS."""
        return self.owner if self.is_remote else None

    @property
    def wait_us(self) -> int:
        """How long one call waits for something at most."""
        return LONG_WAIT_US if self._is_here or self.is_remote else WAIT_US

    @property
    def is_remote(self) -> bool:
        """True if the storage backend is that of a hub."""
        return self._folder is None and self._connect is None

    async def take(self, name: str, *args: Any, back: Callable[[Any], Awaitable[Any]], wait: Wait | None = None) -> Any:
        """Make a call that waits for events or a lease. Cancelled, it ends the wait, and ``back``
        gives back a result that was on its way. ``end_wait`` ends it for another task.
        """
        if not self.is_remote:
            # A call of this process gives back what nobody reads.
            begun = self.call(name, *args)
            if wait is not None:
                wait.begun = begun
            return await begun
        token = secrets.randbits(63)
        taking = asyncio.ensure_future(self.call(name, *args, token))
        if wait is not None:
            wait.begun, wait.token = taking, token
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            returning = asyncio.ensure_future(self._return(taking, token, back))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            raise

    async def end_wait(self, wait: Wait) -> None:
        """End a wait: its call returns what has come by then, or is cancelled."""
        wait.is_ended = True
        if self.is_remote:
            await self._end(wait.begun, wait.token)
        elif hasattr(wait.begun, "cancel"):
            wait.begun.cancel()

    async def _return(self, taking: asyncio.Future[Any], token: int, back: Callable[[Any], Awaitable[Any]]) -> None:
        if not taking.done():
            await self._end(taking, token)
        with contextlib.suppress(TidewireError, asyncio.CancelledError):
            await back(await taking)

    def end(self, fetching: asyncio.Task[Any], begun: Any, token: int) -> asyncio.Future[Any] | None:
        """End a fetch, so that its task returns the events that have come by then. Events that a
        cancelled task loses would come again only after their ack wait.

        Args:
            fetching: The task that waits for it.
            begun: The operation that it waits for, if it has begun.
            token: The last argument of a fetch of a hub, which is asked to end it.

        Returns:
            The future of the request to the hub; the caller keeps a reference.
        """
        if self.is_remote and begun is not None:
            return asyncio.ensure_future(self._end(fetching, token))
        (begun if hasattr(begun, "cancel") else fetching).cancel()
        return None

    async def _end(self, fetching: asyncio.Future[Any], token: int) -> None:
        try:
            is_ended = await self.call("end_wait", token)
        except TidewireError:
            is_ended = False
        if not is_ended:
            # The fetch has not reached the hub, or its answer has arrived here.
            fetching.cancel()

    def hold(self, name: str, holder: str, ttl_us: int) -> Any:
        """Have the hub take a lease, and give it back when it sees that this process is gone; as
        a stream that gives the fence.
        """
        return self.owner.client(SERVICE).hold(name, holder, ttl_us)

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
