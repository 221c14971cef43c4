"""Publishing without a wait for each ack: messages that come while a batch is stored are the next
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
    """Acknowledgement of a stream that stores a message.

    Attributes:
        sequence: Its place in the stream, from 1; of a duplicate, that of the first.
        durability: Failure that the message survives: ``memory`` the end of its publisher,
            ``disk`` a loss of power, ``replicated`` that of a machine.
        duplicate: True if the stream had a message with its id: it was not stored again.
        schedule_id: Of a delayed message its id, made if it had none. The event that it becomes has
            it in the header ``schedule-id``, and a sequence of its own. Else None.
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
    """Return a message in the form of storage backends."""
    is_now = delay is None and at is None and ttl is None
    if is_now and headers is None and value.__class__ is bytes and content == "bytes":
        # The usual case needs no look at each argument.
        return subject, value, key, id, _NO_HEADERS, None, None
    payload, written = content_of(value, content, headers)
    if is_now:
        return subject, payload, key, id, written, None, None
    if delay is not None and at is not None:
        raise InvalidArgument("delay: it is given together with at: give one of them")
    due_us = None if delay is None else round(time() * 1_000_000) + (span_us("delay", delay) or 0)
    if at is not None:
        due_us = round(at.timestamp() * 1_000_000)
    if due_us is not None:
        written = [*written, (_SCHEDULE_ID, os.urandom(12).hex() if id is None else id)]
    return subject, payload, key, id, written, due_us, span_us("ttl", ttl)


_NO_HEADERS: list[tuple[str, str]] = []


class Publisher:
    """Publishes with many messages on their way; an async context manager. See
    ``Stream.publisher``.
    """

    def __init__(self, home: Home, name: str, window: int) -> None:
        if not isinstance(window, int) or not 1 <= window <= 100_000:
            raise InvalidArgument(f"window: {window!r} is not allowed: give 1 to 100,000 messages")
        self._core = home.begun().publisher(name, window)

    @property
    def acked(self) -> int:
        """How many messages are stored."""
        return self._core.acked

    @property
    def last(self) -> Ack | None:
        """The ack of the newest message that is stored."""
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
        """Publish a message: awaiting it waits for room in the window, not until it is stored.
        Arguments as of ``Stream.publish``.

        Cancelled while it waits for room, it has published nothing.

        Raises:
            InvalidArgument: if an argument is not allowed.
            PublishFailed: if messages before it were not stored.
        """
        headers = of_message(subject, headers)
        return self._core.publish(message_of(subject, value, key, id, headers, content, delay, at, ttl))

    async def flush(self) -> None:
        """Wait until everything that was published is stored.

        Raises:
            PublishFailed: if something of it was not, or it is not known; ``failures`` names each.
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
