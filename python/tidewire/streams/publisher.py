"""Publishing without a wait for each ack: messages that come while a batch is stored are the next
batch.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidewire.errors import InvalidArgument, PublishFailed
from tidewire.streams.event import content_of
from tidewire.streams.home import refused, span_us

if TYPE_CHECKING:
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
    payload, written = content_of(value, content, headers)
    if delay is None and at is None and ttl is None:
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
_MESSAGES_MAX = 10_000
_BYTES_MAX = 4 << 20
"""What messages to a hub have together at most, unless one alone has more: a call takes no more
than the hub's ``payload_bytes``.
"""


def _together(home: Home, waiting: Sequence[object], messages: Iterable[Message]) -> int:
    """Return how many of those that wait go together."""
    most = min(len(waiting), _MESSAGES_MAX)
    if not home.is_remote:
        return most
    left = _BYTES_MAX
    for number, message in enumerate(islice(messages, most)):
        left -= len(message[1])
        if left < 0:
            return max(1, number)
    return most


class Batcher:
    """Messages of one event loop on their way into one stream, in their order: one batch is stored
    at a time.
    """

    __slots__ = ("_home", "_name", "_task", "_waiting")

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._name = name
        self._waiting: list[tuple[Message, asyncio.Future[Ack]]] = []
        self._task: asyncio.Task[None] | None = None

    async def publish(self, message: Message) -> Ack:
        """Store a message, with all that come at the same time."""
        acknowledgement: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, acknowledgement))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return await acknowledgement

    async def _run(self) -> None:
        try:
            while self._waiting:
                count = _together(self._home, self._waiting, (message for message, _ in self._waiting))
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                try:
                    results = await self._home.call("publish", self._name, [message for message, _ in batch], False)
                except Exception as error:  # noqa: BLE001 - the waiter gets the error
                    results = [error] * len(batch)
                for (message, acknowledgement), result in zip(batch, results, strict=True):
                    _tell(message, acknowledgement, result)
        finally:
            self._task = None


def _tell(message: Message, acknowledgement: asyncio.Future[Ack], result: Any) -> None:
    if acknowledgement.done():
        return
    error = result if isinstance(result, BaseException) else refused(result)
    if error is None:
        ack = Ack(*result)
        acknowledgement.set_result(ack if message[5] is None else ack._replace(schedule_id=message[4][-1][1]))
    else:
        acknowledgement.set_exception(error)


class Publisher:
    """Publishes with many messages on their way; an async context manager. See
    ``Stream.publisher``.
    """

    def __init__(self, home: Home, name: str, window: int) -> None:
        if not isinstance(window, int) or not 1 <= window <= 100_000:
            raise InvalidArgument(f"window: {window!r} is not allowed: give 1 to 100,000 messages")
        self._home = home
        self._name = name
        self._window = window
        self._waiting: list[Message] = []
        self._in_flight = 0
        self._begun = 0
        self._task: asyncio.Task[None] | None = None
        self._capacity_freed: asyncio.Event | None = None
        self._failures: list[str] = []
        self._failed = 0
        self._cause: BaseException | None = None
        self.acked = 0
        """How many messages are stored."""
        self.last: Ack | None = None
        """The ack of the newest message that is stored."""

    async def publish(
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
    ) -> None:
        """Publish a message: returns when there is room in the window, not when it is stored.
        Arguments as of ``Stream.publish``.

        Cancelled while it waits for room, it has published nothing.

        Raises:
            InvalidArgument: if an argument is not allowed, or the publisher's block has been left.
            PublishFailed: if messages before it were not stored.
        """
        while len(self._waiting) + self._in_flight >= self._window:
            if self._capacity_freed is None:
                self._capacity_freed = asyncio.Event()
            self._capacity_freed.clear()
            await self._capacity_freed.wait()
        if self._failures:
            raise self._failure()
        if (
            content == "bytes"
            and value.__class__ is bytes
            and headers is None
            and delay is None
            and at is None
            and ttl is None
        ):
            # The usual case needs no look at each argument.
            self._waiting.append((subject, value, key, id, _NO_HEADERS, None, None))
        else:
            self._waiting.append(message_of(subject, value, key, id, headers, content, delay, at, ttl))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def flush(self) -> None:
        """Wait until everything that was published is stored.

        Raises:
            PublishFailed: if something of it was not, or it is not known; ``failures`` names each.
        """
        while self._task is not None:
            await asyncio.shield(self._task)
        if self._failures:
            raise self._failure()

    async def _run(self) -> None:
        try:
            while self._waiting:
                count = _together(self._home, self._waiting, self._waiting)
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                self._in_flight = count
                try:
                    results = await self._home.call("publish", self._name, batch, False)
                except Exception as error:  # noqa: BLE001 - the waiter gets the error
                    self._note_all(batch, error)
                else:
                    self._note(batch, results)
                self._begun += len(batch)
                self._in_flight = 0
                if self._capacity_freed is not None:
                    self._capacity_freed.set()
        finally:
            self._task = None

    def _note(self, batch: list[Message], results: list[Any]) -> None:
        stored = [result for result in results if len(result) == 3]
        if len(stored) < len(results):
            for number, result in enumerate(results):
                error = refused(result) if len(result) == 2 else None
                if error is not None:
                    self._fail(self._begun + number, batch[number][3], error)
        self.acked += len(stored)
        if stored:
            self.last = Ack(*stored[-1])

    def _note_all(self, batch: list[Message], error: BaseException) -> None:
        for number, message in enumerate(batch):
            self._fail(self._begun + number, message[3], error)

    def _fail(self, number: int, id: str | None, error: BaseException) -> None:
        self._failed += 1
        self._cause = self._cause or error
        # The first say what is wrong; a list of all would have no bound.
        if len(self._failures) < 1_000:
            named = "" if id is None else f" (id {id!r})"
            self._failures.append(f"message {number}{named}: {type(error).__name__}: {error}")

    def _failure(self) -> PublishFailed:
        text = f"stream {self._name!r}: {self._failed} messages were not stored: {self._failures[0]}"
        failure = PublishFailed(text, failures=list(self._failures))
        failure.__cause__ = self._cause
        self._failures.clear()
        self._failed, self._cause = 0, None
        return failure

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            try:
                await self.flush()
            except PublishFailed:
                # The exception of the block takes precedence.
                if kind is None:
                    raise
