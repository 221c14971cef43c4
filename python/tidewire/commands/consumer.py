"""Consumers and dead letters of ``tidewire stream``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import tidewire as tw
from tidewire.commands.place import moment

if TYPE_CHECKING:
    from tidewire.streams.consumer import Consumer

# Dead letters of one call of `requeue_all`.
_PAGE = 1_000


async def existing(node: tw.Node, stream: str, name: str) -> Consumer:
    """Return an existing consumer. ``Stream.consumer`` would create a missing one, and compares the
    settings of an existing one.
    """
    from tidewire.streams.consumer import Consumer

    of = await node.find_stream(stream)
    consumer = Consumer(of._home, of.name, name, max_in_flight=1)
    await consumer.info()
    return consumer


async def requeue_all(consumer: Consumer) -> int:
    """Deliver all dead letters again, and return their number."""
    start = count = 0
    while letters := await consumer.dead_letters(start, _PAGE):
        count += await consumer.requeue(*(letter.sequence for letter in letters))
        # Skips events that have become dead letters again.
        start = letters[-1].sequence + 1
    return count


def start_of(text: str) -> str | int | datetime:
    """Parse a position in a stream."""
    if text in ("new", "all"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    return moment("TO", text, "new, all, a sequence or ")


def line_of(one: tw.DeadEvent) -> str:
    """Format a dead letter as text."""
    about = "the stream no longer has it" if one.event is None else f"{one.event.subject} {one.event.value!r}"
    end = f"{one.reason} after {one.deliveries} deliveries: {one.error}"
    return f"{one.sequence} {one.time:%F %T} {end}\n  {about}"


def data_of(one: tw.DeadEvent) -> dict[str, Any]:
    """Return a dead letter as data."""
    names = ("sequence", "deliveries", "reason", "error", "traceback")
    data = {name: getattr(one, name) for name in names} | {"time": one.time.isoformat()}
    if one.event is None:
        return data | {"subject": None, "key": None, "id": None, "headers": None, "value": None}
    of = one.event
    return data | {"subject": of.subject, "key": of.key, "id": of.id, "headers": of.headers, "value": of.value}
