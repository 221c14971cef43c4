"""Streams, buckets and leases for plain threads: each call blocks until it is done on the node's
loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tidewire._current import running_loop
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire.node import Node
    from tidewire.streams.bucket import Bucket, Entry
    from tidewire.streams.consumer import Consumer
    from tidewire.streams.event import DeadEvent, Event
    from tidewire.streams.lease import Lease
    from tidewire.streams.publisher import Ack
    from tidewire.streams.schedule import Schedule
    from tidewire.streams.stream import ConsumerInfo, Stream, StreamInfo

_T = TypeVar("_T")


def run(node: Node, call: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the node's loop, and wait for it on this thread.

    Raises:
        InvalidArgument: if an event loop runs on this thread.
    """
    if running_loop() is not None:
        call.close()
        raise InvalidArgument("node.sync would block this thread's event loop: await the same call without .sync")
    node._ensure_loop()
    assert node._loop is not None
    under_way = asyncio.run_coroutine_threadsafe(call, node._loop)
    try:
        return under_way.result()
    except KeyboardInterrupt:
        under_way.cancel()
        raise


class SyncStream:
    """A stream for plain threads; ``node.sync.stream(...)`` makes one. Arguments and errors are
    those of ``tw.Stream``.
    """

    def __init__(self, node: Node, stream: Stream) -> None:
        self._node = node
        self._stream = stream
        self.name = stream.name

    def publish(self, subject: str, value: Any, **options: Any) -> Ack:
        """Store a message, and block until it is on the disk."""
        return run(self._node, self._stream.publish(subject, value, **options))

    def publish_all(self, messages: Iterable[tuple[str, Any]], window: int = 1_000) -> int:
        """Store many messages, ``(subject, value)`` each, and block until all are on the disk.
        Returns how many.

        Raises:
            PublishFailed: if some were not stored.
        """

        async def publish() -> int:
            async with self._stream.publisher(window) as out:
                for subject, value in messages:
                    await out.publish(subject, value)
            return out.acked

        return run(self._node, publish())

    def consumer(self, name: str, **options: Any) -> SyncConsumer:
        """Make a consumer, or find it."""
        return SyncConsumer(self._node, run(self._node, self._stream.consumer(name, **options)))

    def read(self, start: Any = "all", stop: int | None = None, filter: Any = (), type: Any = None) -> Iterator[Event]:
        """Yield events without keeping any state."""
        events = self._stream.read(start, stop, filter, type=type)

        async def some() -> list[Event]:
            found: list[Event] = []
            async for event in events:
                found.append(event)
                if len(found) == 1_000:
                    break
            return found

        while page := run(self._node, some()):
            yield from page

    def schedule(self, name: str, when: str | float, subject: str, value: Any, **options: Any) -> Schedule:
        """Have the storage backend publish a message again and again."""
        return run(self._node, self._stream.schedule(name, when, subject, value, **options))

    def schedules(self) -> list[Schedule]:
        """Return its schedules, by name."""
        return run(self._node, self._stream.schedules())

    def cancel_schedule(self, name: str) -> bool:
        """End a schedule. False if there is none of this name."""
        return run(self._node, self._stream.cancel_schedule(name))

    def info(self) -> StreamInfo:
        """Return what there is of it."""
        return run(self._node, self._stream.info())

    def purge(self, **options: Any) -> int:
        """Remove events. Returns how many."""
        return run(self._node, self._stream.purge(**options))

    def delete(self) -> None:
        """Delete it."""
        run(self._node, self._stream.delete())


class SyncConsumer:
    """A consumer for plain threads: ``for event in consumer``, then ``consumer.ack(event)``."""

    def __init__(self, node: Node, consumer: Consumer) -> None:
        self._node = node
        self._consumer = consumer
        self.name = consumer.name

    def next(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event; None after ``timeout`` seconds."""
        if self._consumer._ready and self._consumer._broken is None:
            return self._consumer._ready.popleft()
        return run(self._node, self._consumer.next(timeout))

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

    def info(self) -> ConsumerInfo:
        """Return what there is of it."""
        return run(self._node, self._consumer.info())

    def dead_letters(self, start: int = 0, limit: int = 100) -> list[DeadEvent]:
        """Return events that were given up."""
        return run(self._node, self._consumer.dead_letters(start, limit))

    def requeue(self, *sequences: int) -> int:
        """Deliver dead letters anew."""
        return run(self._node, self._consumer.requeue(*sequences))

    def close(self) -> None:
        """Store the settled deliveries, and give back the unhandled ones."""
        run(self._node, self._consumer.close())


class SyncBucket:
    """A bucket for plain threads; ``node.sync.kv(...)`` makes one. Arguments and errors are those
    of ``tw.Bucket``.
    """

    def __init__(self, node: Node, bucket: Bucket) -> None:
        self._node = node
        self._bucket = bucket
        self.name = bucket.name

    def put(self, key: str, value: Any, **options: Any) -> int:
        """Write a value, and return its revision."""
        return run(self._node, self._bucket.put(key, value, **options))

    def create(self, key: str, value: Any, **options: Any) -> int:
        """Write a value if the key has none."""
        return run(self._node, self._bucket.create(key, value, **options))

    def update(self, key: str, value: Any, **options: Any) -> int:
        """Write a value if the key has a revision."""
        return run(self._node, self._bucket.update(key, value, **options))

    def get(self, key: str, revision: int | None = None) -> Entry | None:
        """Return the newest entry of a key."""
        return run(self._node, self._bucket.get(key, revision))

    def delete(self, key: str, **options: Any) -> int:
        """Delete the value of a key."""
        return run(self._node, self._bucket.delete(key, **options))

    def keys(self, filter: str = ">") -> list[str]:
        """Return the keys that have a value."""
        return run(self._node, self._bucket.keys(filter))


class SyncLease:
    """A lease for plain threads: ``with node.sync.lease("nightly") as lease``."""

    def __init__(self, node: Node, lease: Lease) -> None:
        self._node = node
        self._lease = lease

    @property
    def fence(self) -> int:
        """The fencing token."""
        return self._lease.fence

    @property
    def is_held(self) -> bool:
        """True if the lease is certainly held."""
        return self._lease.is_held

    def __enter__(self) -> SyncLease:
        run(self._node, self._lease.acquire())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._node, self._lease.__aexit__(kind, error, trace))
