"""Publishing without a wait for each ack: messages published while a batch is stored form the next
batch.
"""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tidewire._trace_context import of_message
from tidewire.errors import InvalidArgument, PublishFailed
from tidewire.streams.event import content_of
from tidewire.streams.home import span_us

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire.streams.home import Home


class Ack(NamedTuple):
    """Acknowledgement of a stored message.

    Attributes:
        sequence: Its sequence number in the stream, from 1; of a duplicate, that of the first.
        durability: Failure that the message survives: ``memory`` the end of its publisher,
            ``disk`` a power loss, ``replicated`` the loss of a machine.
        duplicate: True if the stream had a message with this id, and did not store it again.
        schedule_id: Id of a delayed message, generated if it had none; else None. Its event has a
            sequence number of its own, and this id in the header ``schedule-id``.
    """

    sequence: int
    durability: str
    duplicate: bool
    schedule_id: str | None = None


_SCHEDULE_ID = "schedule-id"
Message = tuple[str, bytes, "str | None", "str | None", "list[tuple[str, str]]", "int | None", "int | None"]


def message_of(
    subject: str,
    value: Any,
    key: str | None,
    id: str | None,
    headers: dict[str, str] | None,
    content: str,
    delay: float | None,
    at: datetime | None,
    ttl: float | None,
) -> Message:
    """Return a message as storage backends expect it."""
    is_plain = delay is None and at is None and ttl is None
    if is_plain and headers is None and value.__class__ is bytes and content == "bytes":
        # Fast path.
        return subject, value, key, id, _NO_HEADERS, None, None
    payload, all_headers = content_of(value, content, headers)
    if is_plain:
        return subject, payload, key, id, all_headers, None, None
    if delay is not None and at is not None:
        raise InvalidArgument("delay: it is given together with at: give one of them")
    due_us = None if delay is None else round(time() * 1_000_000) + (span_us("delay", delay) or 0)
    if at is not None:
        due_us = round(at.timestamp() * 1_000_000)
    if due_us is not None:
        all_headers = [*all_headers, (_SCHEDULE_ID, os.urandom(12).hex() if id is None else id)]
    return subject, payload, key, id, all_headers, due_us, span_us("ttl", ttl)


_NO_HEADERS: list[tuple[str, str]] = []


class Publisher:
    """Publisher with a window of unacknowledged messages; an async context manager. See
    ``Stream.publisher``.
    """

    def __init__(self, home: Home, name: str, window: int) -> None:
        if not isinstance(window, int) or not 1 <= window <= 100_000:
            raise InvalidArgument(f"window: {window!r} is not allowed: give 1 to 100,000 messages")
        self._core = home.backend().publisher(name, window)

    @property
    def acked(self) -> int:
        """Number of stored messages."""
        return self._core.acked

    @property
    def last(self) -> Ack | None:
        """Ack of the newest stored message."""
        return self._core.last

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
    ) -> Pending[None]:
        """Publish a message. Awaiting it waits for capacity in the window, not for the ack. The
        arguments are those of ``Stream.publish``.

        Cancelled while it waits for capacity, it publishes nothing.

        Raises:
            InvalidArgument: if an argument is not allowed.
            PublishFailed: if an earlier message was not stored.
        """
        headers = of_message(subject, headers)
        return self._core.publish(message_of(subject, value, key, id, headers, content, delay, at, ttl))

    async def flush(self) -> None:
        """Wait until all published messages are stored.

        Raises:
            PublishFailed: if some were not stored, or this is unknown; ``failures`` names each.
        """
        await self._core.flush()

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            try:
                await self.flush()
            except PublishFailed:
                # The exception of the block takes precedence.
                if kind is None:
                    raise
