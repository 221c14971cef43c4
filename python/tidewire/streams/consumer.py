"""Consumers: named cursors over a stream, whose events are settled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidewire._log import log
from tidewire._runtime.blocking_portal import Blocking, blocking, run
from tidewire.streams.event import DeadEvent, Event
from tidewire.streams.pages import Reader

if TYPE_CHECKING:
    from tidewire.streams.home import Home
    from tidewire.streams.stream import ConsumerInfo
    from tidewire.streams.value_type import ValueType


class Consumer(Reader[Event]):
    """A consumer of a stream: ``async for event in consumer``, or ``await consumer.next()``. See
    ``Stream.consumer``.

    Several may take events from one consumer, in one process or many: each event goes to one of
    them. Events are fetched in batches that grow while they are handled quickly, and are of one
    event while they are not.

    While the hub or the servers are away, it waits for them. Acks of that time are stored
    afterwards, and events that were fetched and not begun go back.
    """

    _form: type[SyncConsumer]

    def __init__(
        self,
        home: Home,
        stream: str,
        name: str,
        max_in_flight: int,
        shape: ValueType | None = None,
        raise_on_outage: bool = False,
    ) -> None:
        def late(count: int) -> None:
            text = "consumer %(consumer)s of stream %(stream)s: %(late)d acks came too late: their events were delivered again"
            log.warning("consumer.acks_late", text, stream=stream, consumer=name, late=count)

        reads = home.reads(f"consumer {name!r} of stream {stream!r}", raise_on_outage)
        core = home.begun().consumer(reads, stream, name, max_in_flight, late)
        super().__init__(home, core, lambda fields, delivery: Event(fields, delivery, shape))
        self._stream = stream
        self.name = name

    async def next(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event.

        Args:
            timeout: Seconds after which None is returned, during an outage a second later at most;
                None for no limit.

        Cancelled, it takes nothing: events on their way go back to the stream, and no delivery is
        used up, but on NATS, where the last one never is.
        """
        taken = self._core.take()
        return await self._next(timeout) if taken is None else self._make(*taken)

    async def _next(self, timeout: float | None = None) -> Event | None:
        self._readers.holding.discard(self)
        event = await super()._next(timeout)
        if event is not None:
            self._readers.holding.add(self)
        return event

    async def flush(self) -> None:
        """Wait until everything that was settled is on the disk.

        Raises:
            HomeError: if the storage backend can't be reached, or was closed.
        """
        await self._core.flush()

    async def close(self) -> None:
        """Store the settled deliveries, and give back the fetched and unhandled ones: another
        consumer gets them at once.

        The return is not a delivery, except on NATS, which counts each send.
        """
        self._core.give_back()
        await self.flush()

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._core.give_back()
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            await self.flush()

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

        self._core.give_back()
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


class SyncConsumer(Blocking[Consumer], form_of=Consumer):
    """A consumer for plain threads: ``for event in consumer``, then ``consumer.ack(event)``."""

    name: str
    info = blocking(Consumer.info)
    dead_letters = blocking(Consumer.dead_letters)
    requeue = blocking(Consumer.requeue)
    close = blocking(Consumer.close)

    def next(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event; None after ``timeout`` seconds."""
        if (taken := self._of._core.take()) is not None:
            return self._of._make(*taken)
        return run(self._node, self._of.next(timeout))

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self.next()
            assert event is not None
            yield event

    def ack(self, event: Event, wait: bool = False) -> None:
        """Say that an event was handled."""
        run(self._node, event.ack(wait))

    def nak(self, event: Event, delay: float | None = None, error: BaseException | None = None) -> None:
        """Say that it failed."""
        run(self._node, event.nak(delay, error))

    def term(self, event: Event, reason: str, error: BaseException | None = None) -> None:
        """Say that it can't be handled."""
        run(self._node, event.term(reason, error))
