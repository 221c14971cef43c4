"""Storage backend of streams, buckets and leases: a folder of this process, or the hub, which
serves its own as a service.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidewire._binding import StreamHome, home_error
from tidewire.errors import (
    HomeUnavailable,
    InvalidArgument,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RevisionConflict,
    SettingsDiffer,
    StaleDelivery,
    StreamFull,
    TidewireError,
    Unsupported,
)

if TYPE_CHECKING:
    from tidewire.node import Node

SERVICE = "tidewire-streams"
"""The name under which a node with a data folder serves it to those that join it."""

_CALLS = frozenset(
    [
        "create_stream",
        "stream_info",
        "list_streams",
        "delete_stream",
        "purge",
        "publish",
        "create_schedule",
        "list_schedules",
        "cancel_schedule",
        "read",
        "create_consumer",
        "consumer_info",
        "list_consumers",
        "delete_consumer",
        "fetch",
        "settle",
        "pause",
        "resume",
        "seek",
        "dead_letters",
        "requeue",
        "drop_dead",
        "create_bucket",
        "bucket_info",
        "list_buckets",
        "delete_bucket",
        "put",
        "get",
        "delete",
        "keys",
        "history",
        "watch",
        "acquire",
        "renew",
        "release",
        "lease_info",
        "list_leases",
        "capabilities",
    ]
)

WAIT_US = 4_000_000
"""How long one call waits for something at most; then it is called again. Less than the timeout of
a call over a link.
"""
LONG_WAIT_US = 600_000_000
"""The same where the end of the wait is heard of: in a folder of this process, and at a hub, which
ends it when its link is lost or it stops. Who only waits does not wake up."""
_WAITS = frozenset(["fetch", "read", "watch", "acquire"])
_ENDED = {"fetch": 5, "acquire": 4}
"""The calls of a hub whose wait can be ended, and how many arguments come before the token that
says which one.
"""
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
        """Have the hub take a lease, and give it back when it sees that this process is gone; see
        ``Service.hold``.
        """
        return self.owner.client(SERVICE).hold(name, holder, ttl_us)

    async def _call_connected(
        self, connect: Callable[[], Awaitable[StreamHome]], name: str, args: tuple[Any, ...]
    ) -> Any:
        self._folder = await connect()
        return await getattr(self._folder, name)(*args)


class Service:
    """Service of a node with a data folder for the nodes that join it."""

    # Errors of the caller: the caller receives them, and the hub does not log them.
    _answers_ = (
        HomeUnavailable,
        LeaseHeld,
        LeaseLost,
        NotFound,
        RevisionConflict,
        SettingsDiffer,
        StaleDelivery,
        StreamFull,
        Unsupported,
    )

    def __init__(self, home: Home) -> None:
        self._home = home
        self._waiting: dict[int, Any] = {}
        self._leaving = False
        # The waits that can be ended, by their tokens, and those that were.
        self._tokens: dict[int, Any] = {}
        self._ended: set[int] = set()

    def leave(self) -> None:
        """End what waits, as the node stops. For the event loop that runs the calls."""
        self._leaving = True
        for waiting in self._waiting.values():
            waiting.cancel()

    async def call(self, name: str, args: list[Any]) -> Any:
        """Do a call of the folder.

        Raises:
            HomeUnavailable: if it waited when the node stopped.
        """
        if name == "end_wait":
            return self._end_wait(*args)
        if name not in _CALLS:
            raise InvalidArgument(
                f"name: {name!r} is no call of a home: use the same version of Tidewire on both sides"
            )
        if name not in _WAITS:
            return await self._home.call(name, *args)
        token = args.pop() if len(args) > _ENDED.get(name, len(args)) else 0
        begun = self._home.call(name, *args)
        if not hasattr(begun, "cancel"):
            # The folder is being opened.
            begun = asyncio.ensure_future(begun)
        self._waiting[id(begun)] = begun
        if token:
            self._tokens[token] = begun
        if self._leaving:
            begun.cancel()
        try:
            return await begun
        except asyncio.CancelledError:
            if token in self._ended:
                if name == "fetch":
                    return []
                raise LeaseHeld("nobody waits for it any more") from None
            if self._leaving:
                raise HomeUnavailable("the hub with the streams is stopping: ask again when it is back") from None
            raise
        finally:
            del self._waiting[id(begun)]
            self._tokens.pop(token, None)
            self._ended.discard(token)

    def _end_wait(self, token: int) -> bool:
        """End a waiting call with its present results. True if there is such a call."""
        begun = self._tokens.get(token)
        if begun is None:
            return False
        self._ended.add(token)
        begun.cancel()
        return True

    async def hold(self, name: str, holder: str, ttl_us: int) -> AsyncIterator[int]:
        """Wait for a lease, give its fence, and give the lease back when nobody reads this stream
        any more. The end of a link is the end of the process behind it; the hub sees that long
        before the lease is over.

        A link that is declared dead as nothing was heard over it is none: its process may only be
        stopped, and still believes in its lease. It has not renewed the lease for a while then, and
        the lease ends by its time.
        """
        home = self._home
        while True:
            with contextlib.suppress(LeaseHeld):
                fence, _ = await home.call("acquire", name, holder, ttl_us, WAIT_US)
                break
        try:
            yield fence
            await asyncio.Event().wait()
        finally:
            held = [lease for lease in await home.call("list_leases") if (lease[0], lease[2]) == (name, fence)]
            if held and held[0][3] > ttl_us // 2:
                await home.call("release", name, fence)


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
