"""Events of a stream, and the settlement of deliveries."""

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
    """Return the payload of a value, and its headers with the content type."""
    if content == "value":
        data = encode(value)
        return data, _PLAIN if headers is None else [*headers.items(), _VALUE]
    own_headers = [] if headers is None else list(headers.items())
    if content == "json":
        return json.dumps(value, separators=(",", ":")).encode(), [*own_headers, _JSON]
    if content != "bytes":
        raise InvalidArgument(f'content: {content!r} is not allowed: give "value", "json" or "bytes"')
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidArgument(f'value: a {type(value).__name__} is not allowed with content="bytes": give bytes')
    return bytes(value), own_headers


def decode_payload(payload: bytes, headers: list[tuple[str, str]]) -> Any:
    """Return the value of a payload from ``content_of``; bytes without a content type in the
    headers.
    """
    content_type = next((value for name, value in headers if name == CONTENT or name.lower() == CONTENT), "")
    if content_type == "tidewire":
        return decode(payload)
    # Other programs add parameters, such as a charset.
    content = content_type.partition(";")[0].strip().lower()
    if content == "tidewire":
        return decode(payload)
    if content == "application/json":
        return json.loads(payload)
    return payload


class Event:
    """An event of a stream.

    Attributes:
        subject: The subject to which it was published.
        sequence: Its sequence number in the stream, from 1.
        key: Its key, such as a customer, or None.
        id: Its idempotency key, or None.
        delivery: Number of this delivery, from 1; 0 if it was read without a consumer.
    """

    __slots__ = (
        "_delivery",
        "_headers",
        "_payload",
        "_time_us",
        "_value_type",
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
        self._value_type = shape

    @property
    def value(self) -> Any:
        """The published value; bytes without a content type in the headers. It is converted to the
        ``type`` of ``consumer`` or ``read``. Each access decodes it again.

        Raises:
            InvalidArgument: if the value does not fit the type. The message names the stream, the
                event and the field.
        """
        value = decode_payload(self._payload, self._headers)
        return value if self._value_type is None else self._value_type.fit(self.sequence, value)

    @property
    def payload(self) -> bytes:
        """The encoded value, as it was published."""
        return self._payload

    @property
    def headers(self) -> dict[str, str]:
        """The headers, including the content type."""
        return dict(map(tuple, self._headers))  # type: ignore[arg-type]

    @property
    def time(self) -> datetime:
        """Time at which the stream stored it."""
        return datetime.fromtimestamp(self._time_us / 1_000_000, UTC)

    async def ack(self, wait: bool = False) -> None:
        """Acknowledge the event: it is not delivered again.

        Acks are stored in batches in the background. If the process ends before its ack is stored,
        the event is delivered again.

        Args:
            wait: True to wait until the ack is on the disk, and to raise the error of the storage
                backend. During an outage this waits as its consumer does.

        Raises:
            StaleDelivery: if the delivery was settled before; with ``wait`` also if the event was
                delivered to another reader since.
        """
        await self._settle("ack", None, "", None, wait)

    async def nak(self, delay: float | None = None, error: BaseException | None = None, wait: bool = False) -> None:
        """Redeliver the event after a failure, or make it a dead letter after its last delivery.

        Args:
            delay: Seconds until the redelivery; None for the consumer's ``backoff``.
            error: The exception; the dead letter stores it with its traceback.
            wait: As for ``ack``.

        Raises:
            StaleDelivery: as ``ack`` does.
        """
        from tidewire.streams.home import span_us

        await self._settle("nak", span_us("delay", delay), "", fault_of(error), wait)

    async def term(self, reason: str, error: BaseException | None = None, wait: bool = False) -> None:
        """Make the event a dead letter at once: it can't be handled. Raises as ``ack`` does."""
        await self._settle("term", None, reason, fault_of(error), wait)

    async def working(self) -> None:
        """Restart the ack wait of the delivery: its handling continues.

        Raises:
            StaleDelivery: if its ack wait had passed.
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
    """A dead letter of a consumer.

    Attributes:
        sequence: Sequence number of the event in the stream.
        event: The event, or None if the stream no longer has it.
        deliveries: Number of its deliveries.
        reason: ``max_deliver``, or the ``reason`` of ``term``.
        error: The last exception, in one line.
        traceback: The traceback of the error; may be empty.
        time: Time at which it became a dead letter.
    """

    __slots__ = ("deliveries", "error", "event", "reason", "sequence", "time", "traceback")

    def __init__(self, raw: Any) -> None:
        event, self.sequence, self.deliveries, dead_at_us, self.reason, self.error, self.traceback = raw
        self.event = None if event is None else Event(event, None)
        self.time = datetime.fromtimestamp(dead_at_us / 1_000_000, UTC)

    def __repr__(self) -> str:
        return f"<DeadEvent {self.sequence}: {self.reason}: {self.error}>"


def fault_of(error: BaseException | None) -> tuple[str, str] | None:
    """Return an error in one line, and its traceback."""
    if error is None:
        return None
    import traceback

    return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
