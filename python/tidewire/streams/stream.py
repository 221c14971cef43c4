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
        subjects: Patterns of its subjects.
        messages: Number of its events.
        bytes: Size on disk.
        first: Sequence of the oldest event; ``last + 1`` if there is none.
        last: Sequence of the newest event, even if it was removed since.
        delayed: Number of delayed messages that are not due yet.
        dead: Number of dead letters of its consumers.
        consumers: Number of its consumers.
        first_time: Time at which the oldest event was stored, or None.
        last_time: Time at which the newest event was stored, or None.
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
        """Return the state from the reply of a storage backend."""
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
        acked_to: Sequence up to which every event is acked, dead or filtered out.
        in_flight: Number of deliveries that are not settled.
        waiting: Number of events that wait for their backoff, or for earlier events of their keys.
        lag: Sequence of the newest event of the stream, minus ``acked_to``.
        redelivered: Number of deliveries after the first of an event, since the storage backend
            was opened.
        dead: Number of its dead letters.
        oldest_time: Time at which the oldest event that is not acked was stored, or None.
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
        """Return the state from the reply of a storage backend."""
        fields = ("name", "acked_to", "in_flight", "waiting", "lag", "redelivered", "dead")
        paused = raw["paused_until_us"] is not None
        return cls(**{name: raw[name] for name in fields}, oldest_time=time_of(raw["oldest_time_us"]), is_paused=paused)


class Stream:
    """A durable stream; ``await node.stream(...)`` creates or opens one."""

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
        """Store a message on the disk, and return its ack. Messages published concurrently share
        one disk sync.

        Args:
            subject: The subject of the event, one of the stream's subjects.
            value: The value of the event.
            key: Key of the event, such as a customer; consumers with ``order="key"`` handle one
                event of a key at a time. At most 256 bytes.
            id: An idempotency key: the stream does not store a second message with it within its
                ``dedupe``. At most 256 bytes.
            headers: Names and values, at most 64 KiB together.
            content: Encoding of the value: ``"value"`` for any that links can encode, ``"json"``,
                or ``"bytes"`` unchanged.
            delay: Seconds until its delivery.
            at: Time of its delivery, instead of ``delay``.
            ttl: Seconds after which it expires.

        Returns:
            Its sequence and durability. When a delayed message is due, it becomes an event with
            another sequence; ``schedule_id`` of the ack identifies it.

        Raises:
            StreamFull: if the stream is at its limit, and refuses messages.
            InvalidArgument: if an argument is not allowed, or the stream does not have the subject.
            NotFound: if the stream was deleted.

        A cancelled call may still store the message.
        """
        headers = of_message(subject, headers)
        message = message_of(subject, value, key, id, headers, content, delay, at, ttl)
        self._home.check()
        if self._queue is None:
            self._queue = self._home.backend().publish_queue(self._home.owner._engine, self.name)
        return self._queue.publish(message)

    def publisher(self, window: int = 1_000) -> Publisher:
        """Return a publisher, which does not wait for each ack: ``async with stream.publisher() as
        out``.

        The end of its block waits for all acks. It raises ``PublishFailed`` with the failures.
        Messages are stored in order.

        Args:
            window: Most unacknowledged messages; ``out.publish`` waits at this limit.
        """
        return Publisher(self._home, self.name, window)

    def batch(self) -> Batch:
        """Return a batch: ``async with stream.batch() as batch: batch.publish(...)``. The end of
        the block stores its messages, at most 1,000, atomically. A block that raises stores none.

        The end of the block raises ``PublishFailed`` if a message was refused; then nothing was
        stored. After an error of the storage backend the result is unknown.

        Raises:
            Unsupported: at the end of the block, if the storage backend has no batches.
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
        """Create a schedule: the storage backend publishes a message at recurring times, even while
        no program runs. Each beat is an event with the name in the header ``Tidewire-Schedule``.

        Programs may call this at each start: a schedule with the same settings continues, one with
        other settings is replaced.

        Args:
            name: Its name in the stream: letters, digits, ``_`` and ``-``, at most 64.
            when: A cron expression of five fields such as ``"0 22 * * 1-5"``, or ``"@daily"``; or
                the interval of the beats in seconds, or as ``"@every 1h30m"``.
            subject: The subject of its beats, one of the stream's subjects.
            value: The value of the events. With the headers at most 64 KiB.
            key: Key of the events.
            headers: Names and values.
            content: Encoding of the value, as for ``publish``.
            ttl: Seconds after which a beat expires.
            time_zone: Time zone of the expression, such as ``"Europe/Berlin"``.

        Returns:
            The schedule. Its ``change`` is ``"made"``, ``"replaced"`` or ``"kept"``.

        Raises:
            InvalidArgument: if an argument is not allowed, or the stream does not have the subject.
            LimitExceeded: if the stream has its maximum number of schedules.
            Unsupported: if the stream refuses messages when it is full, or the storage backend
                has no schedules.
            NotFound: if the stream was deleted.

        A cancelled call may still create the schedule.
        """
        message = message_of(subject, value, key, None, headers, content, None, None, ttl)
        raw = await self._home.call("create_schedule", self.name, name, when_of(when), time_zone, message)
        return Schedule(self._home, self.name, raw)

    async def schedules(self) -> list[Schedule]:
        """Return the schedules of the stream, sorted by name."""
        return [Schedule(self._home, self.name, raw) for raw in await self._home.call("list_schedules", self.name)]

    async def cancel_schedule(self, name: str) -> bool:
        """Cancel a schedule: it publishes no more beats. Return False if it does not exist."""
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
        """Create a consumer, or open the one of this name.

        Args:
            name: Its name: letters, digits, ``_`` and ``-``, at most 64.
            filter: One or several patterns of subjects; all subjects by default.
            mode: ``compete``: all readers share its events, and it is permanent. ``broadcast``:
                this call creates a consumer of its own, which gets all events, and is deleted an
                hour after its last use.
            start: Start of a new consumer: ``"new"``, ``"all"``, a sequence or a datetime.
            ack_wait: Seconds after which a delivery that is not settled counts as failed.
            max_deliver: Failed deliveries after which an event is a dead letter; 0 for no limit.
            backoff: Seconds before the second, third, ... delivery; the last for all further ones.
            max_in_flight: Most unsettled deliveries at a time, over all readers.
            order: ``key``: an event waits until all earlier events of its key are acked or dead; a
                failing key does not delay others.
            type: Type of ``event.value``, converted as a parameter of a service would be: a
                dataclass, ``list[int]``, ...; None for the decoded value.
            raise_on_outage: True to raise HomeUnavailable from reads during an outage. By default
                they wait for its end.

        Raises:
            SettingsDiffer: if the consumer exists with other settings.
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
        """Iterate over events in order, without stored state: a replay.

        A cancelled read loses no event: the next read continues. During an outage of the hub or
        the servers, a replay with ``follow`` waits, and then resumes at its position.

        Args:
            start: Start of the replay: ``"all"``, ``"new"``, a sequence or a datetime.
            stop: The last sequence.
            filter: One or several patterns of subjects.
            follow: True to wait for further events at the end.
            type: Type of ``event.value``, as for ``consumer``.
            raise_on_outage: True to raise the error of an outage with ``follow``; a replay without
                ``follow`` always raises it.

        Raises:
            NotFound: if the stream was deleted.
            DataCorrupt: at an event whose checksum is wrong.
        """
        patterns = [filter] if isinstance(filter, str) else list(filter)
        shape, title = value_type(f"stream {self.name!r}: event", type), f"replay of stream {self.name!r}"
        options = self._home.reader_options(title, raise_on_outage or not follow)
        core = self._home.backend().read(options, self.name, start_of(start), stop, patterns, follow)
        return Pages(self._home, core, lambda fields, _: Event(fields, None, shape))

    async def info(self) -> StreamInfo:
        """Return the state of the stream.

        Raises:
            NotFound: if the stream was deleted.
        """
        return StreamInfo.of(await self._home.call("stream_info", self.name))

    async def consumers(self) -> list[ConsumerInfo]:
        """Return the states of its consumers, sorted by name."""
        return [ConsumerInfo.of(raw) for raw in await self._home.call("list_consumers", self.name)]

    async def purge(self, *, before: int | None = None, keep: int | None = None, filter: str | None = None) -> int:
        """Remove events, and return their number: all, those before a sequence, all but the newest
        ``keep``, or those whose subject matches ``filter``.

        Raises:
            Unsupported: with a filter, if the storage backend can only remove whole files.
        """
        purged: int = await self._home.call("purge", self.name, before, keep, filter)
        return purged

    async def delete(self) -> None:
        """Delete the stream with its consumers and dead letters."""
        await self._home.call("delete_stream", self.name)

    def __repr__(self) -> str:
        return f"<Stream {self.name}>"


class SyncStream(Blocking[Stream], form_of=Stream):
    """A stream for plain threads; ``node.sync.stream(...)`` creates or opens one."""

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
        """Store messages, ``(subject, value)`` each, and block until all are on the disk. Return
        their number.

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
    """Return a position in a stream as storage backends expect it."""
    if start in ("new", "all"):
        return start, 0
    if isinstance(start, datetime):
        return "time", round(start.timestamp() * 1_000_000)
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return "sequence", start
    raise InvalidArgument(f'start: {start!r} is not allowed: give "new", "all", a sequence or a datetime')
