"""Streams: durable ordered logs of events."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from tidewire._limits import CONSUMER_IN_FLIGHT
from tidewire._runtime.blocking_portal import Blocking, blocking, blocking_form, blocking_items, run
from tidewire._trace_context import of_message
from tidewire.errors import InvalidArgument
from tidewire.streams.batch import Batch
from tidewire.streams.consumer import Consumer
from tidewire.streams.event import Event
from tidewire.streams.home import span_us, time_of
from tidewire.streams.pages import Pages
from tidewire.streams.publisher import Ack, Publisher, message_of
from tidewire.streams.schedule import Schedule, when_of
from tidewire.streams.value_type import value_type

if TYPE_CHECKING:
    from tidewire._binding import Pending, PublishQueue
    from tidewire.streams.home import Home

Start = Literal["new", "all"] | int | datetime


@dataclass(frozen=True)
class StreamInfo:
    """State of a stream.

    Attributes:
        name: Its name.
        subjects: Subjects of its events.
        messages: How many events it has.
        bytes: Size on disk.
        first: The oldest event; one more than ``last`` if there is none.
        last: The newest event that was ever there.
        delayed: Messages that wait for their time.
        dead: Dead letters of its consumers.
        consumers: How many consumers it has.
        first_time: When the oldest event was stored, or None.
        last_time: When the newest was, or None.
        settings: All limits, by name.
    """

    name: str
    subjects: tuple[str, ...]
    messages: int
    bytes: int
    first: int
    last: int
    delayed: int
    dead: int
    consumers: int
    first_time: datetime | None
    last_time: datetime | None
    settings: dict[str, Any]

    @classmethod
    def of(cls, raw: dict[str, Any]) -> StreamInfo:
        """Return the state from the answer of a storage backend."""
        plain = {
            name: raw[name] for name in ("name", "messages", "bytes", "first", "last", "delayed", "dead", "consumers")
        }
        settings = {name: raw[name] for name in ("max_bytes", "max_messages", "full", "replicas", "compact")}
        settings["max_age"] = None if raw["max_age_us"] is None else raw["max_age_us"] / 1_000_000
        settings["dedupe"] = raw["dedupe_us"] / 1_000_000
        first_time, last_time = time_of(raw["first_time_us"]), time_of(raw["last_time_us"])
        subjects = tuple(raw["subjects"])
        return cls(**plain, subjects=subjects, first_time=first_time, last_time=last_time, settings=settings)


@dataclass(frozen=True)
class ConsumerInfo:
    """State of a consumer.

    Attributes:
        name: Its name.
        acked_to: Every event up to here is acked, dead, or not selected.
        in_flight: How many deliveries are out.
        waiting: How many events wait for their delay, or for earlier ones of their keys.
        lag: Distance to the newest event: its sequence minus ``acked_to``.
        redelivered: How many deliveries were not the first of their event, since the storage
            backend was opened.
        dead: How many dead letters it has.
        oldest_time: When the oldest event that is not acked was stored, or None.
        is_paused: True if deliveries are paused.
    """

    name: str
    acked_to: int
    in_flight: int
    waiting: int
    lag: int
    redelivered: int
    dead: int
    oldest_time: datetime | None
    is_paused: bool

    @classmethod
    def of(cls, raw: dict[str, Any]) -> ConsumerInfo:
        """Return the state from the answer of a storage backend."""
        names = ("name", "acked_to", "in_flight", "waiting", "lag", "redelivered", "dead")
        paused = raw["paused_until_us"] is not None
        return cls(**{name: raw[name] for name in names}, oldest_time=time_of(raw["oldest_time_us"]), is_paused=paused)


class Stream:
    """A stream; ``await node.stream(...)`` makes one, or finds it."""

    _form: type[SyncStream]

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self.name = name
        self._queue: PublishQueue | None = None

    def publish(
        self,
        subject: str,
        value: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: dict[str, str] | None = None,
        content: str = "value",
        delay: float | None = None,
        at: datetime | None = None,
        ttl: float | None = None,
    ) -> Pending[Ack]:
        """Store a message, and return its ack: it is on the disk then. Messages that are published
        at once share one sync.

        Args:
            subject: Where it goes: one of the stream's subjects.
            value: The value of the event.
            key: Subject of the event, such as a customer; consumers with ``order="key"`` handle
                one of a key at a time. At most 256 bytes.
            id: An idempotency key: a second message with it is not stored within the stream's
                ``dedupe``. At most 256 bytes.
            headers: Names and values, at most 64 KiB together.
            content: How the value is written: ``"value"`` for any that travels over links,
                ``"json"``, or ``"bytes"`` as they are.
            delay: Seconds after which it is delivered.
            at: When it is delivered, instead of ``delay``.
            ttl: Seconds after which it is not delivered any more.

        Returns:
            Its sequence and durability. A delayed message becomes an event with another sequence
            when it is due; ``schedule_id`` of the ack finds it.

        Raises:
            StreamFull: if the stream is at its limit, and refuses.
            InvalidArgument: if an argument is not allowed, or the stream does not take the subject.
            NotFound: if the stream was deleted.

        Cancelled, it may be stored all the same.
        """
        headers = of_message(subject, headers)
        message = message_of(subject, value, key, id, headers, content, delay, at, ttl)
        self._home.check()
        if self._queue is None:
            self._queue = self._home.begun().publish_queue(self._home.owner._engine, self.name)
        return self._queue.publish(message)

    def publisher(self, window: int = 1_000) -> Publisher:
        """Return a publisher, which goes on while messages are being stored: ``async with
        stream.publisher() as out``.

        Leaving its block waits for all acks, or raises ``PublishFailed`` with those that failed.
        The order is kept.

        Args:
            window: How many messages may be on their way; then ``out.publish`` waits.
        """
        return Publisher(self._home, self.name, window)

    def batch(self) -> Batch:
        """Return a batch: ``async with stream.batch() as batch: batch.publish(...)``. Its messages,
        at most 1,000, are stored together when the block is left, whole or not at all; a block that
        raises stores nothing.

        Leaving the block raises ``PublishFailed`` if a message was refused: nothing was stored
        then. After an error of the storage backend it is not known whether the batch was stored.

        Raises:
            Unsupported: on leaving the block, if the storage backend can't do that.
        """
        return Batch(self._home, self.name)

    async def schedule(
        self,
        name: str,
        when: str | float,
        subject: str,
        value: Any,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        content: str = "value",
        ttl: float | None = None,
        time_zone: str = "UTC",
    ) -> Schedule:
        """Have the storage backend publish a message again and again, also while no program runs.
        Each beat is an event with the header ``Tidewire-Schedule``, which has the name.

        A program can say so each time it starts: a schedule with the same settings goes on as it
        was, one with others is replaced.

        Args:
            name: Its name in the stream: letters, digits, ``_`` and ``-``, at most 64.
            when: A cron expression of five fields such as ``"0 22 * * 1-5"``, ``"@daily"``; or
                seconds from one beat to the next, ``"@every 1h30m"``.
            subject: Where its beats go: one of the stream's subjects.
            value: The value of the events. With the headers at most 64 KiB.
            key: Subject of the events.
            headers: Names and values.
            content: How the value is written, as of ``publish``.
            ttl: Seconds after which a beat is not delivered any more.
            time_zone: Time zone of the expression, such as ``"Europe/Berlin"``.

        Returns:
            The schedule; ``change`` says whether it was ``"made"``, ``"replaced"`` or ``"kept"``.

        Raises:
            InvalidArgument: if an argument is not allowed, or the stream does not take the subject.
            LimitExceeded: if the stream has as many schedules as it may have.
            Unsupported: if the stream refuses messages when it is full, or the storage backend
                can't do it.
            NotFound: if the stream was deleted.

        Cancelled, it may be made all the same.
        """
        message = message_of(subject, value, key, None, headers, content, None, None, ttl)
        raw = await self._home.call("create_schedule", self.name, name, when_of(when), time_zone, message)
        return Schedule(self._home, self.name, raw)

    async def schedules(self) -> list[Schedule]:
        """Return its schedules, by name."""
        return [Schedule(self._home, self.name, raw) for raw in await self._home.call("list_schedules", self.name)]

    async def cancel_schedule(self, name: str) -> bool:
        """End a schedule: no further beat comes. False if there is none of this name."""
        cancelled: bool = await self._home.call("cancel_schedule", self.name, name)
        return cancelled

    async def consumer(
        self,
        name: str,
        *,
        filter: str | Sequence[str] = (),
        mode: Literal["compete", "broadcast"] = "compete",
        start: Start = "new",
        ack_wait: float = 30.0,
        max_deliver: int = 5,
        backoff: Sequence[float] = (0.1, 1.0, 10.0),
        max_in_flight: int = CONSUMER_IN_FLIGHT.default,
        order: Literal["none", "key"] = "none",
        type: Any = None,
        raise_on_outage: bool = False,
    ) -> Consumer:
        """Make a consumer, or find the one of this name.

        Args:
            name: Its name: letters, digits, ``_`` and ``-``, at most 64.
            filter: Which subjects: a pattern or several; all if there is none.
            mode: ``compete``: all who take from it share its events, and it is kept. ``broadcast``:
                this call makes a cursor of its own, which gets all events, and goes an hour after
                its last use.
            start: Where it begins when it is made: ``"new"``, ``"all"``, a sequence or a datetime.
            ack_wait: Seconds after which a delivery that is not settled counts as failed.
            max_deliver: After so many failed deliveries an event is a dead letter; 0 for never.
            backoff: Seconds before the second, third, ... delivery; the last for all further ones.
            max_in_flight: How many deliveries may be out at once, over all who take.
            order: ``key``: an event waits until all earlier ones of its key are acked or dead; a
                key that fails holds back itself only.
            type: Type of ``event.value``, converted as a parameter of a service would be: a
                dataclass, ``list[int]``, ...; None for the decoded value.
            raise_on_outage: True to raise HomeUnavailable where events are awaited during an
                outage. By default the consumer waits for its end.

        Raises:
            SettingsDiffer: if it exists with other settings.
            NotFound: if the stream was deleted.
            InvalidArgument: if an argument is not allowed.
        """
        if mode not in ("compete", "broadcast"):
            raise InvalidArgument(f'mode: {mode!r} is not allowed: give "compete" or "broadcast"')
        if order not in ("none", "key"):
            raise InvalidArgument(f'order: {order!r} is not allowed: give "none" or "key"')
        if not isinstance(max_in_flight, int) or not 1 <= max_in_flight <= CONSUMER_IN_FLIGHT.max:
            raise InvalidArgument(
                f"max_in_flight: {max_in_flight!r} is not allowed: give 1 to {CONSUMER_IN_FLIGHT.max}"
            )
        if mode == "broadcast":
            name = f"{name}-{os.urandom(6).hex()}"
        shape = value_type(f"stream {self.name!r}: event", type)
        patterns = [filter] if isinstance(filter, str) else list(filter)
        delays = [span_us("backoff", delay) for delay in backoff]
        inactive_us = 3_600_000_000 if mode == "broadcast" else 0
        await self._home.call(
            "create_consumer",
            self.name,
            name,
            patterns,
            start_of(start),
            span_us("ack_wait", ack_wait),
            max_deliver,
            delays,
            max_in_flight,
            order == "key",
            inactive_us,
        )
        return Consumer(self._home, self.name, name, max_in_flight, shape, raise_on_outage)

    def read(
        self,
        start: Start = "all",
        stop: int | None = None,
        filter: str | Sequence[str] = (),
        follow: bool = False,
        type: Any = None,
        raise_on_outage: bool = False,
    ) -> Pages[Event]:
        """Return a replay: events in order, without any stored state.

        A read of it that is cancelled takes nothing: the next one continues. A replay that follows
        waits while the hub or the servers are away, and goes on at its position.

        Args:
            start: Where to begin: ``"all"``, ``"new"``, a sequence or a datetime.
            stop: The last sequence.
            filter: Which subjects: a pattern or several.
            follow: True to wait at the end for further events.
            type: Type of ``event.value``, as of ``consumer``.
            raise_on_outage: True to raise the error of an outage also with ``follow``; a replay
                that ends always does.

        Raises:
            NotFound: if the stream was deleted.
            DataCorrupt: at an event whose checksum is wrong.
        """
        patterns = [filter] if isinstance(filter, str) else list(filter)
        shape, title = value_type(f"stream {self.name!r}: event", type), f"replay of stream {self.name!r}"
        reads = self._home.reads(title, raise_on_outage or not follow)
        core = self._home.begun().read(reads, self.name, start_of(start), stop, patterns, follow)
        return Pages(self._home, core, lambda fields, _: Event(fields, None, shape))

    async def info(self) -> StreamInfo:
        """Return what there is of it.

        Raises:
            NotFound: if it was deleted.
        """
        return StreamInfo.of(await self._home.call("stream_info", self.name))

    async def consumers(self) -> list[ConsumerInfo]:
        """Return its consumers, by name."""
        return [ConsumerInfo.of(raw) for raw in await self._home.call("list_consumers", self.name)]

    async def purge(self, *, before: int | None = None, keep: int | None = None, filter: str | None = None) -> int:
        """Remove events: all, those before a sequence, all but the newest, or those of some
        subjects. Returns how many.

        Raises:
            Unsupported: with a filter, if the storage backend removes whole files only.
        """
        purged: int = await self._home.call("purge", self.name, before, keep, filter)
        return purged

    async def delete(self) -> None:
        """Delete it with its consumers and dead letters."""
        await self._home.call("delete_stream", self.name)

    def __repr__(self) -> str:
        return f"<Stream {self.name}>"


class SyncStream(Blocking[Stream], form_of=Stream):
    """A stream for plain threads; ``node.sync.stream(...)`` makes one."""

    name: str
    publish = blocking(Stream.publish)
    read = blocking_items(Stream.read)
    schedule = blocking(Stream.schedule)
    schedules = blocking(Stream.schedules)
    cancel_schedule = blocking(Stream.cancel_schedule)
    consumer = blocking_form(Stream.consumer)
    info = blocking(Stream.info)
    purge = blocking(Stream.purge)
    delete = blocking(Stream.delete)

    def publish_all(self, messages: Iterable[tuple[str, Any]], window: int = 1_000) -> int:
        """Store many messages, ``(subject, value)`` each, and block until all are on the disk.
        Returns how many.

        Raises:
            PublishFailed: if some were not stored.
        """

        async def publish_all() -> int:
            async with self._of.publisher(window) as out:
                for subject, value in messages:
                    await out.publish(subject, value)
            return out.acked

        return run(self._node, publish_all())


def start_of(start: Any) -> tuple[str, int]:
    """Return a position in a stream in the form of storage backends."""
    if start in ("new", "all"):
        return start, 0
    if isinstance(start, datetime):
        return "time", round(start.timestamp() * 1_000_000)
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return "sequence", start
    raise InvalidArgument(f'start: {start!r} is not allowed: give "new", "all", a sequence or a datetime')
