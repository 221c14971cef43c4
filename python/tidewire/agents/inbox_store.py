"""Records and inboxes of durable agents in the storage backend: for each agent a key of a bucket,
and a stream.
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
        id: Id of the agent.
        durable: ``inbox`` or ``state``.
        holder: Node where it is active, or was active last.
        fence: Fencing token of that node.
        handled: Number of handled messages.
        dead: Number of dead letters.
        open: Number of messages that were begun and wait for another attempt.
        lag: Number of messages that were not begun.
        outbox: Number of messages from its handlers that were not yet in an inbox at that time.
        commits: Number of writes of its record.
        written: Time of the last write.
        state: State as plain values, or None.
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
    """A dead letter of a durable agent.

    Attributes:
        sequence: Sequence of the message in the inbox, for ``requeue`` and ``drop``.
        message: The message, or None if it can't be decoded.
        attempts: Number of attempts.
        reason: ``failed``, ``expired``, ``malformed``, or ``lost`` (the process ended during each
            attempt).
        error: The last exception, in one line.
        traceback: Traceback of the error; may be empty.
        time: Time at which it became a dead letter.
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
        sequence: Sequence of the message in the inbox.
        time: Time of storage.
        stage: ``over`` (finished), ``open`` (begun, not finished), ``dead`` or ``waiting`` (not
            begun).
        message: The message, or None if it can't be decoded.
    """

    sequence: int
    time: datetime
    stage: str
    message: Message | None


class InboxStore:
    """Durable agents of one storage backend."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._streams: dict[str, Opening[Stream]] = {}
        self._bucket: Opening[Bucket] = Opening(functools.partial(node.kv, BUCKET))

    async def bucket(self) -> Bucket:
        """Create or open the bucket of records. Concurrent callers share one opening."""
        return await self._bucket.get()

    async def inbox(self, id: str) -> Stream:
        """Create or open the stream of an agent's inbox."""
        opening = self._streams.get(id)
        if opening is None:
            if len(self._streams) >= _STREAMS_MAX:
                self._streams.clear()
            stream, subjects = f"tidewire-agent-{token(id)}", [f"tidewire.agent.{token(id)}"]
            make = functools.partial(self.node.stream, stream, subjects=subjects, max_messages=AGENT_INBOX.default)
            opening = self._streams[id] = Opening(make)
        return await opening.get()

    async def post(self, to: str, data: bytes, id: str, headers: dict[str, str] | None = None) -> int:
        """Store a message in an inbox, and return its sequence. One ``id`` is stored once within
        two minutes.

        Raises:
            StreamFull: if the inbox is full.
        """
        subject = f"tidewire.agent.{token(to)}"
        for is_last in (False, True):
            stream = await self.inbox(to)
            try:
                ack = await stream.publish(subject, data, id=id, headers=headers, content="bytes")
            except NotFound:
                # The inbox was deleted after it was opened.
                self._streams.pop(to, None)
                if is_last:
                    raise
            else:
                return ack.sequence
        raise AssertionError

    async def record(self, id: str) -> Record:
        """Return the record of an agent.

        Raises:
            NotFound: if no durable agent has run with this id.
        """
        entry = await (await self.bucket()).get(record_key(id))
        if entry is None:
            raise NotFound(f"agent {id!r}: there is no durable agent with this id: it has never run here")
        found: Record = entry.value
        return found

    async def infos(self) -> list[DurableInfo]:
        """Return the state of all durable agents, ordered by id."""
        bucket = await self.bucket()
        found = [await bucket.get(key) for key in await bucket.keys("*.record")]
        return sorted([await self._info(entry.value) for entry in found if entry is not None], key=lambda info: info.id)

    async def info(self, id: str) -> DurableInfo:
        """Return the state of one durable agent."""
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
        open_sequences = {sequence for sequence, *_ in record["open"]}
        dead = set(await self.dead_sequences(id))

        def stage(sequence: int) -> str:
            if sequence > record["cursor"]:
                return "waiting"
            return "open" if sequence in open_sequences else "dead" if sequence in dead else "over"

        return [
            PastMessage(event.sequence, event.time, stage(event.sequence), _read(event.payload))
            async for event in stream.read(start=max(0, last - limit + 1), stop=last)
        ]

    async def dead_sequences(self, id: str) -> list[int]:
        """Return the sequences of the dead letters, oldest first."""
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
        """Store dead letters as new messages, and return their number."""
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
        """Delete dead letters, and return their number."""
        bucket, dead = await self.bucket(), set(await self.dead_sequences(id))
        dropped = dead.intersection(sequences)
        for sequence in dropped:
            await bucket.delete(dead_key(id, sequence), purge=True)
        return len(dropped)


def token(id: str) -> str:
    """Return the subject token of an agent id."""
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
    """Return the wall clock of this machine, in microseconds."""
    return time.time_ns() // 1_000


def origin(event: Event) -> tuple[str | None, int]:
    """Return the sender of a message from a durable handler, and its number at that sender."""
    headers = event.headers
    sender, number = headers.get(SENDER), headers.get(NUMBER, "")
    return (sender, int(number)) if sender is not None and number.isdecimal() else (None, 0)


def plain_state(record: Record) -> Any:
    """Decode the state of a record as plain values."""
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
