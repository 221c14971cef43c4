"""The records and the inboxes of durable agents, where the streams of a node are: a key of a
bucket, and a stream, of each agent.
"""

from __future__ import annotations

import functools
import hashlib
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidewire._limits import AGENT_INBOX
from tidewire.agents import form
from tidewire.errors import InvalidArgument, NotFound
from tidewire.streams.home import time_of
from tidewire.streams.opening import Opening

if TYPE_CHECKING:
    from tidewire.agents.message import Message
    from tidewire.node import Node
    from tidewire.streams.bucket import Bucket
    from tidewire.streams.event import Event
    from tidewire.streams.stream import Stream

BUCKET = "tidewire-agents"
SENDER, NUMBER = "tw-from", "tw-number"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,40}")
_STREAMS_MAX = 1_000

Record = dict[str, Any]


@dataclass(frozen=True)
class DurableInfo:
    """State of a durable agent, running or not.

    Attributes:
        id: Its id.
        durable: ``inbox`` or ``state``.
        holder: The node that has it, or had it last.
        fence: The fencing token of that node.
        handled: How many messages were handled.
        dead: How many dead letters there are.
        open: How many messages were begun and wait for another attempt.
        lag: How many messages were not begun.
        outbox: How many messages of its handlers were on their way when this was written.
        commits: How often its record was written.
        written: When it was written last.
        state: Its state, as plain values; None if it has none.
    """

    id: str
    durable: str
    holder: str
    fence: int
    handled: int
    dead: int
    open: int
    lag: int
    outbox: int
    commits: int
    written: datetime
    state: Any


@dataclass(frozen=True)
class DeadMessage:
    """A message that a durable agent has given up.

    Attributes:
        sequence: Its place in the inbox: what ``requeue`` and ``drop`` take.
        message: The message, or None if it can't be read.
        attempts: How often it was tried.
        reason: ``failed``, ``expired``, ``malformed`` or ``lost``: the processes that tried it have
            ended.
        error: The last exception, in a line.
        traceback: The traceback of the error; may be empty.
        time: When it was given up.
    """

    sequence: int
    message: Message | None
    attempts: int
    reason: str
    error: str
    traceback: str
    time: datetime


@dataclass(frozen=True)
class PastMessage:
    """A message in the inbox of a durable agent.

    Attributes:
        sequence: Its place in the inbox.
        time: When it was stored.
        stage: ``over``, ``open`` (begun, and not over), ``dead`` or ``waiting`` (not begun).
        message: The message, or None if it can't be read.
    """

    sequence: int
    time: datetime
    stage: str
    message: Message | None


class InboxStore:
    """The durable agents of one home."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._streams: dict[str, Opening[Stream]] = {}
        self._bucket: Opening[Bucket] = Opening(functools.partial(node.kv, BUCKET))

    async def bucket(self) -> Bucket:
        """Make the bucket of records, or find it. Callers share one opening."""
        return await self._bucket.get()

    async def inbox(self, id: str) -> Stream:
        """Make the stream of an agent's inbox, or find it."""
        opening = self._streams.get(id)
        if opening is None:
            if len(self._streams) >= _STREAMS_MAX:
                self._streams.clear()
            stream, subjects = f"tidewire-agent-{token(id)}", [f"tidewire.agent.{token(id)}"]
            make = functools.partial(self.node.stream, stream, subjects=subjects, max_messages=AGENT_INBOX.default)
            opening = self._streams[id] = Opening(make)
        return await opening.get()

    async def post(self, to: str, data: bytes, id: str, headers: dict[str, str] | None = None) -> int:
        """Store a message in an inbox, once within two minutes for one ``id``; return its sequence.

        Raises:
            StreamFull: if the inbox is full.
        """
        subject = f"tidewire.agent.{token(to)}"
        for is_last in (False, True):
            stream = await self.inbox(to)
            try:
                ack = await stream.publish(subject, data, id=id, headers=headers, content="bytes")
            except NotFound:
                # The inbox was deleted meanwhile.
                self._streams.pop(to, None)
                if is_last:
                    raise
            else:
                return ack.sequence
        raise AssertionError

    async def record(self, id: str) -> Record:
        """Return the record of an agent.

        Raises:
            NotFound: if there never was a durable agent with this id.
        """
        entry = await (await self.bucket()).get(record_key(id))
        if entry is None:
            raise NotFound(f"agent {id!r}: there is no durable agent with this id: it has never run here")
        found: Record = entry.value
        return found

    async def infos(self) -> list[DurableInfo]:
        """Return what there is of every durable agent, by id."""
        bucket = await self.bucket()
        found = [await bucket.get(key) for key in await bucket.keys("*.record")]
        return sorted([await self._info(entry.value) for entry in found if entry is not None], key=lambda info: info.id)

    async def info(self, id: str) -> DurableInfo:
        """Return what there is of one."""
        return await self._info(await self.record(id))

    async def _info(self, record: Record) -> DurableInfo:
        inbox = await (await self.inbox(record["id"])).info()
        dead = await (await self.bucket()).keys(dead_key(record["id"], "*"))
        return DurableInfo(
            record["id"],
            record["durable"],
            record["holder"],
            record["fence"],
            record["handled"],
            len(dead),
            len(record["open"]),
            max(0, inbox.last - record["cursor"]),
            len(record["outbox"]),
            record["commit"],
            time_of(record["time_us"]),  # type: ignore[arg-type]
            plain_state(record),
        )

    async def past(self, id: str, limit: int) -> list[PastMessage]:
        """Return the newest messages in an inbox, oldest first."""
        record, stream = await self.record(id), await self.inbox(id)
        last = (await stream.info()).last
        opened = {sequence for sequence, *_ in record["open"]}
        dead = set(await self.dead_sequences(id))

        def stage(sequence: int) -> str:
            if sequence > record["cursor"]:
                return "waiting"
            return "open" if sequence in opened else "dead" if sequence in dead else "over"

        return [
            PastMessage(event.sequence, event.time, stage(event.sequence), _read(event.payload))
            async for event in stream.read(start=max(0, last - limit + 1), stop=last)
        ]

    async def dead_sequences(self, id: str) -> list[int]:
        """Return the places of dead letters, oldest first."""
        keys = await (await self.bucket()).keys(dead_key(id, "*"))
        return sorted(int(key.rpartition(".")[2]) for key in keys)

    async def dead(self, id: str) -> list[DeadMessage]:
        """Return the dead letters of an agent, oldest first."""
        bucket = await self.bucket()
        found = [await bucket.get(dead_key(id, sequence)) for sequence in await self.dead_sequences(id)]
        return [
            DeadMessage(
                stored["sequence"],
                _read(stored["message"]),
                stored["attempts"],
                stored["reason"],
                stored["error"],
                stored["traceback"],
                time_of(stored["time_us"]),  # type: ignore[arg-type]
            )
            for stored in (entry.value for entry in found if entry is not None)
        ]

    async def requeue(self, id: str, sequences: Iterable[int]) -> int:
        """Store dead letters as new messages; return how many there were."""
        bucket, count = await self.bucket(), 0
        for sequence in sequences:
            entry = await bucket.get(dead_key(id, sequence))
            if entry is None:
                continue
            await self.post(id, entry.value["message"], id=f"{token(id)}.again.{sequence}.{entry.revision}")
            await bucket.delete(dead_key(id, sequence), purge=True)
            count += 1
        return count

    async def drop(self, id: str, sequences: Iterable[int]) -> int:
        """Forget dead letters; return how many there were."""
        bucket, there = await self.bucket(), set(await self.dead_sequences(id))
        gone = there.intersection(sequences)
        for sequence in gone:
            await bucket.delete(dead_key(id, sequence), purge=True)
        return len(gone)


def token(id: str) -> str:
    """Return the id of an agent as a part of a subject."""
    return id if _PLAIN.fullmatch(id) else hashlib.blake2b(id.encode(), digest_size=16).hexdigest()


def lease_name(id: str) -> str:
    """Return the name of an agent's lease."""
    return f"agent.{token(id)}"


def record_key(id: str) -> str:
    """Return the key of an agent's record."""
    return f"{token(id)}.record"


def dead_key(id: str, sequence: int | str) -> str:
    """Return the key of a dead letter."""
    return f"{token(id)}.dead.{sequence}"


def now_us() -> int:
    """The time of this machine, for people."""
    return time.time_ns() // 1_000


def origin(event: Event) -> tuple[str | None, int]:
    """Return the sender of a message that was sent by a handler, and its number there."""
    headers = event.headers
    sender, number = headers.get(SENDER), headers.get(NUMBER, "")
    return (sender, int(number)) if sender is not None and number.isdecimal() else (None, 0)


def plain_state(record: Record) -> Any:
    """Return a state as it was written."""
    from tidewire.values import decode

    return None if record["state"] is None else decode(record["state"])


def _read(data: bytes) -> Message | None:
    try:
        return form.from_msgpack(data)
    except InvalidArgument:
        return None


def new_record(id: str) -> Record:
    """Return the record of an agent that has handled no message."""
    return {
        "id": id,
        "epoch": secrets.token_hex(4),
        "commit": 0,
        "left": True,
        "cursor": 0,
        "open": [],
        "heard": [],
        "sent": 0,
        "outbox": [],
        "state": None,
        "handled": 0,
        "dead": 0,
    }
