"""Consumers: named cursors over a stream, whose deliveries are settled."""

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

    Several readers, in one process or many, may share one consumer: each event goes to one of
    them. Events are fetched in batches. The batches grow while events are handled quickly, and
    have one event otherwise.

    During an outage of the hub or the servers, the consumer waits. Acks are stored afterwards.
    Fetched events that were not begun are returned.
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
        def log_late_acks(count: int) -> None:
            text = "consumer %(consumer)s of stream %(stream)s: %(late)d acks came too late: their events were delivered again"
            log.warning("consumer.acks_late", text, stream=stream, consumer=name, late=count)

        reader_options = home.reader_options(f"consumer {name!r} of stream {stream!r}", raise_on_outage)
        core = home.backend().consumer(reader_options, stream, name, max_in_flight, log_late_acks)
        super().__init__(home, core, lambda fields, delivery: Event(fields, delivery, shape))
        self._stream = stream
        self.name = name

    async def next(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event.

        Args:
            timeout: Seconds after which None is returned, during an outage at most a second later;
                None for no limit.

        Safe to cancel: events in transit return to the stream, and no delivery is used up. On NATS
        their deliveries count, apart from the last allowed one.
        """
        raw = self._core.take()
        return await self._next(timeout) if raw is None else self._make(*raw)

    async def _next(self, timeout: float | None = None) -> Event | None:
        self._readers.with_pending.discard(self)
        event = await super()._next(timeout)
        if event is not None:
            self._readers.with_pending.add(self)
        return event

    async def flush(self) -> None:
        """Wait until all settlements are on the disk.

        Raises:
            HomeError: if the storage backend is unreachable or closed.
        """
        await self._core.flush()

    async def close(self) -> None:
        """Flush the settlements, and return the fetched deliveries that were not handled: other
        readers get them at once.

        A return is not counted as a delivery, except on NATS, which counts each send.
        """
        self._core.give_back()
        await self.flush()

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._core.give_back()
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            await self.flush()

    async def info(self) -> ConsumerInfo:
        """Return the state of the consumer: lag, pending deliveries, waiting events.

        Raises:
            NotFound: if the consumer was deleted.
        """
        from tidewire.streams.stream import ConsumerInfo

        return ConsumerInfo.of(await self._home.call("consumer_info", self._stream, self.name))

    async def pause(self) -> None:
        """Stop deliveries to all readers until ``resume``. Earlier deliveries can be settled."""
        await self._home.call("pause", self._stream, self.name, None)

    async def resume(self) -> None:
        """Resume deliveries."""
        await self._home.call("resume", self._stream, self.name)

    async def seek(self, start: Any) -> None:
        """Move the consumer to ``"new"``, ``"all"``, a sequence or a datetime. Pending deliveries
        are dropped.
        """
        from tidewire.streams.stream import start_of

        self._core.give_back()
        await self._home.call("seek", self._stream, self.name, start_of(start))

    async def dead_letters(self, start: int = 0, limit: int = 100) -> list[DeadEvent]:
        """Return at most ``limit`` dead letters, in order, from a sequence on."""
        raw = await self._home.call("dead_letters", self._stream, self.name, start, limit)
        return [DeadEvent(fields) for fields in raw]

    async def requeue(self, *sequences: int) -> int:
        """Deliver dead letters again. Return their number."""
        requeued: int = await self._home.call("requeue", self._stream, self.name, list(sequences))
        return requeued

    async def drop_dead(self, *sequences: int) -> int:
        """Delete dead letters. Return their number."""
        dropped: int = await self._home.call("drop_dead", self._stream, self.name, list(sequences))
        return dropped

    async def delete(self) -> None:
        """Delete the consumer and its dead letters. Readers that wait for an event get NotFound."""
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
        if (raw := self._of._core.take()) is not None:
            return self._of._make(*raw)
        return run(self._node, self._of.next(timeout))

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self.next()
            assert event is not None
            yield event

    def ack(self, event: Event, wait: bool = False) -> None:
        """Acknowledge an event: it was handled."""
        run(self._node, event.ack(wait))

    def nak(self, event: Event, delay: float | None = None, error: BaseException | None = None) -> None:
        """Reject a delivery: its handling has failed, and the event is delivered again."""
        run(self._node, event.nak(delay, error))

    def term(self, event: Event, reason: str, error: BaseException | None = None) -> None:
        """Move an event to the dead letters: it can't be handled."""
        run(self._node, event.term(reason, error))
