"""The records of commands in a key-value bucket, and the queue of their tokens: started, changed by
compare-and-set, listed.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidewire._binding import CommandLife
from tidewire._limits import COMMAND_ARGUMENT_BYTES, COMMAND_LEASE_MS, COMMANDS_QUEUED
from tidewire.errors import HomeBusy, InvalidArgument, NotFound, PayloadTooLarge, RevisionConflict, SettingsDiffer
from tidewire.services.contract.names import token_problem
from tidewire.streams.command_watch import CommandWatch
from tidewire.streams.home import time_of
from tidewire.streams.opening import Opening
from tidewire.values import decode, encode

if TYPE_CHECKING:
    from tidewire.node import Node
    from tidewire.streams.bucket import Bucket
    from tidewire.streams.consumer import Consumer
    from tidewire.streams.home import Home
    from tidewire.streams.stream import Stream

QUEUE = "tidewire-commands"
"""The stream of tokens, and the bucket of records."""
ENDS = "tidewire-command-ends"
"""The stream of what has ended."""
PRIORITIES = ("urgent", "high", "normal", "low")
STAGES = ("queued", "running", "succeeded", "failed", "cancelled")
LEASE_S = COMMAND_LEASE_MS.default / 1_000
_ID_BYTES = 64
_KEY_BYTES = 256
_ENDS_MAX = 100_000
_ENDS_AGE_S = 86_400.0
_CONFLICTS_MAX = 64
_CONSUMER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PAGE = 1_000

Record = dict[str, Any]


@dataclass(frozen=True)
class CommandInfo:
    """State of a command.

    Attributes:
        id: Its id.
        service: The service that does it.
        command: Which of its commands it is.
        stage: ``queued``, ``running``, ``succeeded``, ``failed`` or ``cancelled``.
        attempt: The newest attempt, from 1; 0 if there was none.
        retries: How often it is tried again.
        is_cancelling: True if its worker was asked to end it.
        key: Subject of the command, or None.
        priority: Which go first: ``urgent``, ``high``, ``normal`` or ``low``.
        caller: The node that has started it.
        worker: The node that has its newest attempt, or None.
        created: When it was started.
        began: When its newest attempt began, or None.
        ended: When it was over, or None.
        fraction: How far its newest attempt is, from 0 to 1.
        note: Note of the newest attempt.
        error: The exception of the newest failed attempt, in a line; empty if none has failed.
        traceback: The traceback of that error.
    """

    id: str
    service: str
    command: str
    stage: str
    attempt: int
    retries: int
    is_cancelling: bool
    key: str | None
    priority: str
    caller: str
    worker: str | None
    created: datetime
    began: datetime | None
    ended: datetime | None
    fraction: float
    note: str
    error: str
    traceback: str

    @property
    def is_over(self) -> bool:
        """True if the command has ended."""
        return self.stage in ("succeeded", "failed", "cancelled")


class CommandStore:
    """The commands of one home."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.home: Home = node._home()
        self.watch = CommandWatch(self.home, QUEUE)
        self._stores: Opening[tuple[Stream, Stream, Bucket]] = Opening(self._open)
        self._consumers: dict[str, Opening[Consumer]] = {}

    async def open(self) -> None:
        """Make the streams and the bucket, if they are not there. Callers share one opening."""
        await self._stores.get()

    async def _open(self) -> tuple[Stream, Stream, Bucket]:
        node = self.node
        return await asyncio.gather(
            node.stream(QUEUE, subjects=["tidewire.command.>"], max_messages=COMMANDS_QUEUED.default),
            node.stream(
                ENDS,
                subjects=["tidewire.command-ended.>"],
                max_age=_ENDS_AGE_S,
                max_messages=_ENDS_MAX,
                full="drop_old",
            ),
            node.kv(QUEUE, history=1),
        )

    @property
    def _queue(self) -> Stream:
        return self._stores.value[0]

    @property
    def _ends(self) -> Stream:
        return self._stores.value[1]

    @property
    def bucket(self) -> Bucket:
        """The records; once it was opened."""
        return self._stores.value[2]

    async def consumer(self, service: str, command: str, priority: str) -> str:
        """Return the name of what gives out the tokens of a command; it is made if it is not
        there.
        """
        await self.open()
        name = f"{service}-{command}-{priority}"
        if not _CONSUMER.fullmatch(name):
            name = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        opening = self._consumers.get(name)
        if opening is None:
            subject = f"tidewire.command.{service}.{command}.{priority}"
            opening = self._consumers[name] = Opening(functools.partial(self._make_consumer, name, subject))
        await opening.get()
        return name

    async def _make_consumer(self, name: str, subject: str) -> Consumer:
        return await self._queue.consumer(
            name,
            filter=subject,
            start="all",
            ack_wait=LEASE_S,
            max_deliver=0,
            backoff=(0.0,),
            max_in_flight=10_000,
        )

    async def start(
        self,
        service: str,
        command: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str | None = None,
        id: str | None = None,
        priority: str = "normal",
    ) -> str:
        """Start a command, or find the one with this id; return its id."""
        return await self.enqueue(
            service, command, encode([list(args), kwargs]), key, id, priority, caller=self.node.name
        )

    async def enqueue(
        self, service: str, command: str, data: bytes, key: str | None, id: str | None, priority: str, caller: str
    ) -> str:
        """As ``start``, with arguments as they travel, for a node that may be another one."""
        problem = _problem(key, id, priority)
        if problem is not None:
            raise InvalidArgument(f"{service}.{command}: {problem}")
        if len(data) > COMMAND_ARGUMENT_BYTES.max:
            raise PayloadTooLarge(
                f"{service}.{command}: its arguments take {len(data):,} bytes, and {COMMAND_ARGUMENT_BYTES.max:,} are allowed: put them into a bucket or a file, and give the name"
            )
        said = encode([service, command, key])
        record: Record = {
            "id": secrets.token_hex(8) if id is None else id,
            "service": service,
            "command": command,
            "arguments": data,
            "digest": hashlib.blake2b(said + data, digest_size=16).hexdigest(),
            "key": key,
            "priority": priority,
            "caller": caller,
            "created_us": now_us(),
            "round": 0,
            "retries": 0,
        }
        write(record, CommandLife("queued", 0, 0, False, None))
        await self.open()
        try:
            await self.bucket.create(f"{record['id']}.state", record)
        except RevisionConflict:
            found = await self.get(record["id"])
            if found["digest"] != record["digest"]:
                raise SettingsDiffer(
                    f"id: {id!r} is that of a command with another name, key or arguments: give each its own id"
                ) from None
            if found["stage"] != "queued" or found["token"] is not None:
                return str(found["id"])
            # The first caller may have failed before it queued the record. One of two tokens
            # counts.
            record = found
        await self._enqueue(record)
        return str(record["id"])

    async def _enqueue(self, record: Record) -> None:
        service, command, priority = record["service"], record["command"], record["priority"]
        await self.consumer(service, command, priority)
        subject = f"tidewire.command.{service}.{command}.{priority}"
        await self._queue.publish(subject, record["id"], id=f"{record['id']}.{record['round']}")

    async def get(self, id: str) -> Record:
        """Return a record, as it is now.

        Raises:
            NotFound: if there is none.
        """
        return (await self.entry(id))[0]

    async def entry(self, id: str) -> tuple[Record, int]:
        """As ``get``, with the revision."""
        await self.open()
        found = await self.bucket.get(f"{id}.state")
        if found is None:
            raise NotFound(
                f"command {id!r}: there is none: its id is wrong, or it has ended and was kept as long as its service says"
            )
        return found.value, found.revision

    async def change(self, id: str, decide: Callable[[Record], CommandLife | None]) -> tuple[Record, int]:
        """Change a record by a function, which may be called again: another writer may be faster.

        Args:
            id: Of the command.
            decide: Changes the record, and returns its life as it is to be written, or None for not
                at all.

        Returns:
            The record as it is then, and its revision.
        """
        for _ in range(_CONFLICTS_MAX):
            record, revision = await self.entry(id)
            life = decide(record)
            if life is None:
                return record, revision
            write(record, life)
            ttl = record.get("keep") if life.over else None
            try:
                return record, await self.bucket.update(f"{id}.state", record, revision=revision, ttl=ttl)
            except RevisionConflict:
                continue
        raise HomeBusy(f"command {id!r}: its record was changed {_CONFLICTS_MAX} times meanwhile: try again")

    async def cancel(self, id: str) -> bool:
        """Cancel a command. True if that changes anything: the command was not over, and not being
        cancelled.
        """
        changed = False

        def decide(record: Record) -> CommandLife | None:
            nonlocal changed
            life = life_of(record)
            changed = life.cancel()
            if changed and life.over:
                record["ended_us"] = now_us()
            return life if changed else None

        await self.change(id, decide)
        return changed

    async def renew(self, id: str) -> bool:
        """Begin a command anew that has failed or was cancelled. True if it begins."""
        changed = False

        def decide(record: Record) -> CommandLife | None:
            nonlocal changed
            life = life_of(record)
            changed = life.renew()
            if not changed:
                return None
            record["round"] += 1
            for name in ("worker", "began_us", "ended_us", "progress"):
                record.pop(name, None)
            return life

        record, _ = await self.change(id, decide)
        if changed or (record["stage"] == "queued" and record["token"] is None):
            await self._enqueue(record)
        return changed

    async def infos(self) -> list[CommandInfo]:
        """Return all, the oldest first."""
        await self.open()
        states: dict[str, Record] = {}
        progress: dict[str, Any] = {}
        after, more = 0, True
        while more:
            raw, after, more = await self.home.call("watch", QUEUE, ">", after, _PAGE, 0)
            for key, data, _, _ in raw:
                name, _, kind = key.rpartition(".")
                into: dict[str, Any] = states if kind == "state" else progress
                into.pop(name, None)
                if data is not None:
                    into[name] = decode(data)
            more = more and bool(raw)
        found = [info_of(record, progress.get(name)) for name, record in states.items()]
        return sorted(found, key=lambda info: (info.created, info.id))

    async def info(self, id: str) -> CommandInfo:
        """Return one."""
        record = await self.get(id)
        progress = await self.bucket.get(f"{id}.progress")
        return info_of(record, None if progress is None else progress.value)

    async def tell_end(self, record: Record) -> None:
        """Publish that a command has ended, once."""
        message = {
            name: record.get(name) for name in ("id", "service", "command", "stage", "attempt", "key", "error_text")
        }
        message["error"] = message.pop("error_text") or ""
        subject = f"tidewire.command-ended.{record['service']}.{record['command']}"
        await self._ends.publish(subject, message, key=record["key"], id=f"{record['id']}.{record['round']}")

    async def tidy(self) -> None:
        """Remove tokens that nobody needs any more."""
        done = [consumer.acked_to for consumer in await self._queue.consumers()]
        least: int = min(done, default=0)
        if least:
            await self._queue.purge(before=least + 1)


def now_us() -> int:
    """The time of this machine, for people."""
    return time.time_ns() // 1_000


def life_of(record: Record) -> CommandLife:
    """Return the machine of a record."""
    return CommandLife(record["stage"], record["attempt"], record["retries"], record["cancelling"], record.get("token"))


def write(record: Record, life: CommandLife) -> None:
    """Write the state of the state machine into a record."""
    record |= {"stage": life.stage, "attempt": life.attempt, "cancelling": life.cancelling, "token": life.token}


def info_of(record: Record, progress: Any) -> CommandInfo:
    """Return a record as users see it."""
    fraction, note, attempt, _ = progress or record.get("progress") or (0.0, "", record["attempt"], 0)
    if attempt != record["attempt"]:
        fraction, note = 0.0, ""
    return CommandInfo(
        record["id"],
        record["service"],
        record["command"],
        record["stage"],
        record["attempt"],
        record["retries"],
        record["cancelling"],
        record["key"],
        record["priority"],
        record["caller"],
        record.get("worker"),
        time_of(record["created_us"]),  # type: ignore[arg-type]
        time_of(record.get("began_us")),
        time_of(record.get("ended_us")),
        1.0 if record["stage"] == "succeeded" else fraction,
        note,
        record.get("error_text") or "",
        record.get("traceback") or "",
    )


def _problem(key: Any, id: Any, priority: Any) -> str | None:
    if id is not None:
        problem = token_problem("id", id)
        if problem is not None or len(id.encode()) > _ID_BYTES:
            return problem or f"id: {id[:40]!r} is not allowed: give at most {_ID_BYTES} bytes"
    if key is not None and (not isinstance(key, str) or not 1 <= len(key.encode()) <= _KEY_BYTES):
        return f"key: {key!r} is not allowed: give a text of 1 to {_KEY_BYTES} bytes"
    if priority not in PRIORITIES:
        return f"priority: {priority!r} is not allowed: give {', '.join(map(repr, PRIORITIES))}"
    return None
