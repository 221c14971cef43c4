"""The commands ``tidewire stream dead|requeue|drop-dead|pause|resume|seek|rm-consumer``: their
output, and their exit codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import tidewire as tw
from tidewire.commands.stream import moment, run_at, say
from tidewire.streams.consumer import Consumer

# Of one call, when all dead letters are requeued.
_PAGE = 1_000


def dead(at: str, stream: str, name: str, start: int, limit: int, as_json: bool) -> int:
    """List dead letters."""

    async def work(consumer: Consumer) -> int:
        found = await consumer.dead_letters(start, limit)
        say(as_json, [_data(one) for one in found], "\n".join(map(_line, found)) or "no dead letters")
        return 0

    return _run(at, stream, name, work, as_json)


def requeue(at: str, stream: str, name: str, sequences: list[int], as_json: bool) -> int:
    """Deliver dead letters anew, all if none is named; 1 if there were none."""

    async def work(consumer: Consumer) -> int:
        count = await consumer.requeue(*sequences) if sequences else await _requeue_all(consumer)
        say(as_json, {"requeued": count}, f"{name}: {count} requeued")
        return 0 if count else 1

    return _run(at, stream, name, work, as_json)


def drop_dead(at: str, stream: str, name: str, sequences: list[int], as_json: bool) -> int:
    """Forget dead letters; 1 if there were none."""

    async def work(consumer: Consumer) -> int:
        count = await consumer.drop_dead(*sequences)
        say(as_json, {"dropped": count}, f"{name}: {count} dropped")
        return 0 if count else 1

    return _run(at, stream, name, work, as_json)


def pause(at: str, stream: str, name: str, as_json: bool) -> int:
    """Deliver nothing until it is resumed."""

    async def work(consumer: Consumer) -> int:
        await consumer.pause()
        say(as_json, {"paused": True}, f"{name} is paused")
        return 0

    return _run(at, stream, name, work, as_json)


def resume(at: str, stream: str, name: str, as_json: bool) -> int:
    """Go on with delivering."""

    async def work(consumer: Consumer) -> int:
        await consumer.resume()
        say(as_json, {"paused": False}, f"{name} goes on")
        return 0

    return _run(at, stream, name, work, as_json)


def seek(at: str, stream: str, name: str, to: str, as_json: bool) -> int:
    """Go on at another place."""

    async def work(consumer: Consumer) -> int:
        start = _start(to)
        await consumer.seek(start)
        shown = start.isoformat() if isinstance(start, datetime) else start
        say(as_json, {"start": shown}, f"{name} goes on at {shown}")
        return 0

    return _run(at, stream, name, work, as_json)


def rm(at: str, stream: str, name: str, as_json: bool) -> int:
    """Delete a consumer."""

    async def work(consumer: Consumer) -> int:
        await consumer.delete()
        say(as_json, {"deleted": name}, f"{name} deleted")
        return 0

    return _run(at, stream, name, work, as_json)


def _run(at: str, stream: str, name: str, work: Callable[[Consumer], Awaitable[int]], as_json: bool) -> int:
    """Do something with a consumer that is there. ``Stream.consumer`` would make a missing one, and
    asks for the settings of an existing one.
    """

    async def found(node: tw.Node) -> int:
        of = await node.find_stream(stream)
        consumer = Consumer(of._home, of.name, name, max_in_flight=1)
        await consumer.info()
        return await work(consumer)

    return run_at(at, as_json, found)


async def _requeue_all(consumer: Consumer) -> int:
    start = count = 0
    while letters := await consumer.dead_letters(start, _PAGE):
        count += await consumer.requeue(*(letter.sequence for letter in letters))
        # An event that has failed again meanwhile is behind this.
        start = letters[-1].sequence + 1
    return count


def _start(text: str) -> str | int | datetime:
    if text in ("new", "all"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    return moment("TO", text, "new, all, a sequence or ")


def _line(one: tw.DeadEvent) -> str:
    about = "the stream no longer has it" if one.event is None else f"{one.event.subject} {one.event.value!r}"
    end = f"{one.reason} after {one.deliveries} deliveries: {one.error}"
    return f"{one.sequence} {one.time:%F %T} {end}\n  {about}"


def _data(one: tw.DeadEvent) -> dict[str, Any]:
    names = ("sequence", "deliveries", "reason", "error", "traceback")
    data = {name: getattr(one, name) for name in names} | {"time": one.time.isoformat()}
    if one.event is None:
        return data | {"subject": None, "key": None, "id": None, "headers": None, "value": None}
    of = one.event
    return data | {"subject": of.subject, "key": of.key, "id": of.id, "headers": of.headers, "value": of.value}
