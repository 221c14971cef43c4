"""Streams, buckets and leases for plain threads: each call blocks until it is done on the node's
loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from tidewire._runtime.blocking_portal import Blocking, blocking, blocking_items, run
from tidewire.streams.bucket import Bucket
from tidewire.streams.consumer import Consumer
from tidewire.streams.event import Event
from tidewire.streams.lease import Lease
from tidewire.streams.stream import Stream


class SyncStream(Blocking[Stream]):
    """A stream for plain threads; ``node.sync.stream(...)`` makes one."""

    name: str
    publish = blocking(Stream.publish)
    read = blocking_items(Stream.read)
    schedule = blocking(Stream.schedule)
    schedules = blocking(Stream.schedules)
    cancel_schedule = blocking(Stream.cancel_schedule)
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

    def consumer(self, name: str, **options: Any) -> SyncConsumer:
        """Make a consumer, or find it."""
        return SyncConsumer(run(self._node, self._of.consumer(name, **options)), self._node)


class SyncConsumer(Blocking[Consumer]):
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


class SyncBucket(Blocking[Bucket]):
    """A bucket for plain threads; ``node.sync.kv(...)`` makes one."""

    name: str
    put = blocking(Bucket.put)
    create = blocking(Bucket.create)
    update = blocking(Bucket.update)
    get = blocking(Bucket.get)
    delete = blocking(Bucket.delete)
    keys = blocking(Bucket.keys)


class SyncLease(Blocking[Lease]):
    """A lease for plain threads: ``with node.sync.lease("nightly") as lease``."""

    fence: int
    is_held: bool

    def __enter__(self) -> SyncLease:
        run(self._node, self._of.acquire())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._node, self._of.__aexit__(kind, error, trace))
