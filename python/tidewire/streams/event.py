"""Events of a stream, and the settlement of their deliveries."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidewire.errors import InvalidArgument
from tidewire.values import decode, encode

if TYPE_CHECKING:
    from tidewire._binding import EventDelivery
    from tidewire.streams.value_type import ValueType

CONTENT = "content-type"
_VALUE = ("content-type", "tidewire")
_JSON = ("content-type", "application/json")
_PLAIN = [_VALUE]

Raw = tuple[str, bytes, "str | None", "str | None", "list[tuple[str, str]]", int, int, int]


def content_of(value: Any, content: str, headers: dict[str, str] | None) -> tuple[bytes, list[tuple[str, str]]]:
    """Return a value as bytes, and the headers that say what they are."""
    if content == "value":
        data = encode(value)
        return data, _PLAIN if headers is None else [*headers.items(), _VALUE]
    given = [] if headers is None else list(headers.items())
    if content == "json":
        return json.dumps(value, separators=(",", ":")).encode(), [*given, _JSON]
    if content != "bytes":
        raise InvalidArgument(f'content: {content!r} is not allowed: give "value", "json" or "bytes"')
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidArgument(f'value: a {type(value).__name__} is not allowed with content="bytes": give bytes')
    return bytes(value), given


def decoded(payload: bytes, headers: list[tuple[str, str]]) -> Any:
    """Return the value that was written as ``content_of`` says; bytes if no header says what they
    are.
    """
    given = next((value for name, value in headers if name == CONTENT or name.lower() == CONTENT), "")
    if given == "tidewire":
        return decode(payload)
    # Other programs add parameters, such as a charset.
    content = given.partition(";")[0].strip().lower()
    if content == "tidewire":
        return decode(payload)
    if content == "application/json":
        return json.loads(payload)
    return payload


class Event:
    """An event of a stream.

    Attributes:
        subject: Where it was published.
        sequence: Its place in the stream, from 1.
        key: Subject of the event, or None.
        id: Its idempotency key, or None.
        delivery: Which attempt this is, from 1; 0 for one that was read without a consumer.
    """

    __slots__ = (
        "_delivery",
        "_headers",
        "_payload",
        "_shape",
        "_time_us",
        "delivery",
        "id",
        "key",
        "sequence",
        "subject",
    )

    def __init__(self, raw: Raw, delivery: EventDelivery | None, shape: ValueType | None = None) -> None:
        (self.subject, self._payload, self.key, self.id, self._headers, self.sequence, self._time_us, self.delivery) = (
            raw
        )
        self._delivery = delivery
        self._shape = shape

    @property
    def value(self) -> Any:
        """The published value, or bytes if no header says its type. The value has the ``type`` that
        ``consumer`` or ``read`` was given. Decoded anew each time.

        Raises:
            InvalidArgument: if it does not fit the type; the message names the stream, the event
                and the field.
        """
        value = decoded(self._payload, self._headers)
        return value if self._shape is None else self._shape.fit(self.sequence, value)

    @property
    def payload(self) -> bytes:
        """The published value, encoded."""
        return self._payload

    @property
    def headers(self) -> dict[str, str]:
        """The headers, the type of the content among them."""
        return dict(map(tuple, self._headers))  # type: ignore[arg-type]

    @property
    def time(self) -> datetime:
        """When it was stored."""
        return datetime.fromtimestamp(self._time_us / 1_000_000, UTC)

    async def ack(self, wait: bool = False) -> None:
        """Say that it was handled: it is not delivered again.

        Acks are stored in batches in the background. One that is lost with the process is no loss:
        the event comes again.

        Args:
            wait: If true, wait until the ack is on the disk, and raise the error of the storage
                backend. A consumer that waits outages out waits here, too.

        Raises:
            StaleDelivery: if it was settled before; with ``wait`` also if it was given to another
                since.
        """
        await self._settle("ack", None, "", None, wait)

    async def nak(self, delay: float | None = None, error: BaseException | None = None, wait: bool = False) -> None:
        """Say that it failed: it comes again, or is a dead letter if that was the last delivery.

        Args:
            delay: Seconds until then; None for the consumer's ``backoff``.
            error: The exception; the dead letter has it with its traceback.
            wait: As of ``ack``.

        Raises:
            StaleDelivery: as ``ack`` does.
        """
        from tidewire.streams.home import span_us

        await self._settle("nak", span_us("delay", delay), "", fault_of(error), wait)

    async def term(self, reason: str, error: BaseException | None = None, wait: bool = False) -> None:
        """Say that it can't be handled: it is a dead letter at once. Raises as ``ack`` does."""
        await self._settle("term", None, reason, fault_of(error), wait)

    async def working(self) -> None:
        """Say that it is still worked on: its ack wait begins anew.

        Raises:
            StaleDelivery: if its time was over.
        """
        await self._settle("working", None, "", None, True)

    async def _settle(
        self, how: str, delay_us: int | None, reason: str, fault: tuple[str, str] | None, wait: bool
    ) -> None:
        if self._delivery is None:
            raise InvalidArgument(f"event {self.sequence}: it was read, not delivered: only consumers settle events")
        await self._delivery.settle((how, delay_us, reason, fault), wait)

    def __repr__(self) -> str:
        return f"<Event {self.sequence} {self.subject}>"


class DeadEvent:
    """An event that a consumer has given up.

    Attributes:
        sequence: Its place in the stream.
        event: The event, or None if the stream does not have it any more.
        deliveries: How often it was delivered.
        reason: ``max_deliver``, or what ``term`` was given.
        error: The last exception, in a line.
        traceback: The traceback of the error; may be empty.
        time: When it was given up.
    """

    __slots__ = ("deliveries", "error", "event", "reason", "sequence", "time", "traceback")

    def __init__(self, raw: Any) -> None:
        event, self.sequence, self.deliveries, dead_at_us, self.reason, self.error, self.traceback = raw
        self.event = None if event is None else Event(event, None)
        self.time = datetime.fromtimestamp(dead_at_us / 1_000_000, UTC)

    def __repr__(self) -> str:
        return f"<DeadEvent {self.sequence}: {self.reason}: {self.error}>"


def fault_of(error: BaseException | None) -> tuple[str, str] | None:
    """Return an error in a line, and its traceback."""
    if error is None:
        return None
    import traceback

    return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
