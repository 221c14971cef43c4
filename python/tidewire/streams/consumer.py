"""Consumers: named cursors over a stream, whose events are settled."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from tidewire._log import log
from tidewire.errors import HomeUnavailable, NodeStopped, TidewireError
from tidewire.streams.event import DeadEvent, Event
from tidewire.streams.home import refused
from tidewire.streams.outage import Outage

if TYPE_CHECKING:
    from tidewire.streams.home import Home
    from tidewire.streams.stream import ConsumerInfo
    from tidewire.streams.value_type import ValueType

_AHEAD_MAX = 1_000
_BYTES_MAX = 4 << 20
_QUICK_S = 0.1
_SETTLED_MAX = 10_000

Settled = tuple[int, int, str, "int | None", str, "tuple[str, str] | None"]


class Consumer:
    """A consumer of a stream: ``async for event in consumer``, or ``await consumer.next()``. See
    ``Stream.consumer``.

    Several may take events from one consumer, in one process or many: each event goes to one of
    them. Events are fetched in batches that grow while they are handled quickly, and are of one
    event while they are not.

    While the hub or the servers are away, it waits for them. Acks of that time are stored
    afterwards, and events that were fetched and not begun go back.
    """

    def __init__(
        self,
        home: Home,
        stream: str,
        name: str,
        max_in_flight: int,
        shape: ValueType | None = None,
        raise_on_outage: bool = False,
    ) -> None:
        self._home = home
        self._stream = stream
        self.name = name
        self._shape = shape
        self._ready: deque[Event] = deque()
        self._ahead = 1
        self._ahead_max = min(_AHEAD_MAX, max_in_flight)
        self._fetched_at = 0.0
        self._settled: list[Settled] = []
        self._settling: asyncio.Task[None] | None = None
        self._capacity_freed: asyncio.Event | None = None
        self._broken: BaseException | None = None
        self._outage = None if raise_on_outage else Outage(home, f"consumer {name!r} of stream {stream!r}")
        # Why acks could not be stored: they are kept for the end of the outage.
        self._away: TidewireError | None = None
        self._loop = asyncio.get_running_loop()
        self._waits: set[asyncio.Future[Any]] = set()
        # The node ends.
        self._has_ended = False
        self._waits_over: asyncio.Event | None = None
        open_consumers = home.owner._open_consumers
        assert open_consumers is not None
        self._open_consumers = open_consumers
        self._open_consumers.add(self)

    async def next(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event.

        Args:
            timeout: Seconds after which None is returned, during an outage a second later at most;
                None for no limit.

        Cancelled, it takes nothing: events on their way go back to the stream, and no delivery is
        used up, but on NATS, where the last one never is.
        """
        self._tell_broken()
        if self._has_ended:
            self._raise_ended()
        if self._ready:
            return self._ready.popleft()
        until = None if timeout is None else monotonic() + timeout
        while True:
            self._pace()
            if self._outage is None:
                await self._fetch(until)
            else:
                await self._outage.outlast(functools.partial(self._fetch, until), until)
            if self._ready:
                return self._ready.popleft()
            self._ahead = 1
            if until is not None and monotonic() >= until:
                return None

    async def _fetch(self, until: float | None) -> None:
        most_us = self._home.wait_us
        if self._outage is not None:
            most_us = self._outage.wait_us
            if self._away is not None:
                await self._store_settled()
        left_us = most_us if until is None else max(0, min(most_us, round((until - monotonic()) * 1_000_000)))
        if not self._ready:
            self._open_consumers.holding.discard(self)
        wait = asyncio.ensure_future(
            self._home.call("fetch", self._stream, self.name, self._ahead, _BYTES_MAX, left_us)
        )
        self._waits.add(wait)
        try:
            raw = await wait
            self._fetched_at = monotonic()
            if raw:
                self._ready.extend(Event(fields, self, self._shape) for fields in raw)
                self._open_consumers.holding.add(self)
        except asyncio.CancelledError:
            if not self._has_ended or _is_cancelled():
                raise
        finally:
            self._waits.discard(wait)
            if self._waits_over is not None and not self._waits:
                self._waits_over.set()
        if self._has_ended:
            self._raise_ended()

    def _pace(self) -> None:
        """Fetch more at once while the last batch was handled quickly: what waits here has an ack
        wait that runs.
        """
        quick = monotonic() - self._fetched_at < _QUICK_S
        self._ahead = min(self._ahead * 4, self._ahead_max) if quick else max(1, self._ahead // 4)

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Event:
        if self._ready and self._broken is None:
            return self._ready.popleft()
        event = await self.next()
        assert event is not None
        return event

    async def _settle_now(self, settled: Settled) -> None:
        [result] = await self._home.call("settle", self._stream, self.name, [settled])
        error = refused(result)
        if error is not None:
            raise error

    async def _settle_soon(self, settled: Settled) -> None:
        self._tell_broken()
        self._settled.append(settled)
        self._begin_settling()
        while len(self._settled) >= _SETTLED_MAX:
            if self._away is not None:
                raise self._away
            if self._capacity_freed is None:
                self._capacity_freed = asyncio.Event()
            self._capacity_freed.clear()
            await self._capacity_freed.wait()

    def _begin_settling(self) -> None:
        if self._settling is None and self._settled:
            self._settling = asyncio.get_running_loop().create_task(self._settle())

    async def _settle(self) -> None:
        try:
            while self._settled:
                batch, self._settled = self._settled, []
                if self._capacity_freed is not None:
                    self._capacity_freed.set()
                try:
                    results = await self._home.call("settle", self._stream, self.name, batch)
                except HomeUnavailable as error:
                    if self._outage is None:
                        raise
                    self._keep_settled(batch, error)
                    return
                self._away = None
                stale = [
                    item
                    for item, result in zip(batch, results, strict=True)
                    if result is not None and item[2] != "release"
                ]
                if stale:
                    what = f"{len(stale)} came too late, that of event {stale[0][0]} first: their events were delivered again"
                    text = f"consumer %(consumer)s of stream %(stream)s: of {len(batch)} acks %(late)s"
                    log.warning("consumer.acks_late", text, stream=self._stream, consumer=self.name, late=what)
        except Exception as error:  # noqa: BLE001 - the waiter gets the error
            self._broken = error
            if self._capacity_freed is not None:
                self._capacity_freed.set()
        finally:
            self._settling = None

    def _keep_settled(self, batch: list[Settled], error: TidewireError) -> None:
        """Keep acks for the end of an outage. Events that wait here go back to a hub: a hub that
        was started again delivers them anew.
        """
        self._away = error
        self._settled = [*batch, *self._settled]
        if self._home.is_remote:
            self._settled += [(event.sequence, event._ticket, "release", None, "", None) for event in self._ready]
            self._ready.clear()
        if self._capacity_freed is not None:
            self._capacity_freed.set()

    async def _store_settled(self) -> None:
        """Store what was settled during an outage. Raises its error if it goes on."""
        self._away = None
        self._begin_settling()
        while self._settling is not None:
            await asyncio.shield(self._settling)
        if self._away is not None:
            raise self._away

    def _tell_broken(self) -> None:
        """Raise, once, that acks were not stored: their events come again, and the storage backend
        may be back by then.
        """
        error, self._broken = self._broken, None
        if error is not None:
            raise error

    async def flush(self) -> None:
        """Wait until everything that was settled is on the disk.

        Raises:
            HomeError: if the storage backend can't be reached, or was closed.
        """
        await self._store_settled()
        self._tell_broken()

    async def close(self) -> None:
        """Store the settled deliveries, and give back the fetched and unhandled ones: another
        consumer gets them at once.

        The return is not a delivery, except on NATS, which counts each send.
        """
        while self._ready:
            await self._ready.popleft()._release()
        await self.flush()

    @property
    def _is_open(self) -> bool:
        """True if the end of the node has to wait for it."""
        return bool(self._waits or self._ready or self._settled or self._settling is not None)

    async def _end(self) -> None:
        """End its waits, and close it, as its node ends."""
        with contextlib.suppress(TidewireError):
            if self._waits:
                self._waits_over = asyncio.Event()
                for wait in self._waits:
                    wait.cancel()
                await self._waits_over.wait()
            await self.close()

    def _raise_ended(self) -> NoReturn:
        raise NodeStopped(
            f"consumer {self.name!r} of stream {self._stream!r}: its node has stopped: make it anew with another node"
        )

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            await self.close()

    async def info(self) -> ConsumerInfo:
        """Return its state: its lag, its pending deliveries, its waiting events.

        Raises:
            NotFound: if it was deleted.
        """
        from tidewire.streams.stream import ConsumerInfo

        return ConsumerInfo.of(await self._home.call("consumer_info", self._stream, self.name))

    async def pause(self) -> None:
        """Deliver nothing more, to nobody, until it is resumed. Delivered events may be settled."""
        await self._home.call("pause", self._stream, self.name, None)

    async def resume(self) -> None:
        """Go on with delivering."""
        await self._home.call("resume", self._stream, self.name)

    async def seek(self, start: Any) -> None:
        """Go on at another place: ``"new"``, ``"all"``, a sequence or a datetime. Pending
        deliveries are forgotten.
        """
        from tidewire.streams.stream import start_of

        self._ready.clear()
        await self._home.call("seek", self._stream, self.name, start_of(start))

    async def dead_letters(self, start: int = 0, limit: int = 100) -> list[DeadEvent]:
        """Return events that were given up, in order, from a sequence on."""
        raw = await self._home.call("dead_letters", self._stream, self.name, start, limit)
        return [DeadEvent(fields) for fields in raw]

    async def requeue(self, *sequences: int) -> int:
        """Deliver dead letters anew. Returns how many of them there were."""
        requeued: int = await self._home.call("requeue", self._stream, self.name, list(sequences))
        return requeued

    async def drop_dead(self, *sequences: int) -> int:
        """Forget dead letters. Returns how many of them there were."""
        dropped: int = await self._home.call("drop_dead", self._stream, self.name, list(sequences))
        return dropped

    async def delete(self) -> None:
        """Delete it with its dead letters. Callers that wait for its events get NotFound."""
        await self._home.call("delete_consumer", self._stream, self.name)

    def __repr__(self) -> str:
        return f"<Consumer {self.name} of {self._stream}>"


def _is_cancelled() -> bool:
    """Return whether this task itself is cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
