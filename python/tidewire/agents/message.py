"""Messages between agents."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from time import monotonic, time
from typing import Any, Literal, get_args

import msgspec

from tidewire._runtime.process_state import in_child, lock
from tidewire.agents.no_headers import NO_HEADERS
from tidewire.errors import InvalidArgument

Kind = Literal["request", "response", "event", "broadcast", "context", "status", "error"]
Priority = Literal["urgent", "high", "normal", "low"]

KINDS: frozenset[str] = frozenset(get_args(Kind))
PRIORITIES: frozenset[str] = frozenset(get_args(Priority))

# Bits of Message.flags: whatever makes a message more than a payload to be handled.
# IS_ASKED: it came without a message around it, and its sender waits for an answer.
EXPIRES, HAS_RECEIPT, IS_CONTEXT, IS_AGAIN, IS_ASKED = 1, 2, 4, 8, 16

_numbers = itertools.count(1)
_numbering = lock()
_ORIGIN = os.urandom(6).hex()


def _begin_anew() -> None:
    """In the child of a fork: its messages are not those of its parent."""
    global _ORIGIN
    _ORIGIN = os.urandom(6).hex()


in_child(_begin_anew)


class Message(msgspec.Struct, eq=False, repr_omit_defaults=True, gc=True):
    """A message between agents. A handler with a second parameter receives it there.

    Attributes:
        payload: The payload: in one process the sent object itself, of any type.
        kind: "request", "response", "event", "broadcast", "context", "status" or "error".
        sender: The id of the agent that sent it; empty if no agent sent it.
        created: When it was sent, in seconds since 1970-01-01 UTC; ``created_at`` is the same as a
            datetime.
        recipients: The ids of the agents that it was sent to.
        topic: The topic that it was published on, or None.
        priority: "urgent", "high", "normal" or "low".
        ttl: For how many seconds after its creation it may be handled, or None for ever.
        headers: Further data of the message besides the payload.
        delivery: Which attempt to handle it this is, from 1.
        correlation_id: The id of the message that this one belongs to, or None.
        reply_to: The id of the agent that an answer should go to, or None.
    """

    payload: Any
    kind: Kind = "event"
    sender: str = ""
    created: float = msgspec.field(default_factory=time)
    recipients: tuple[str, ...] = ()
    topic: str | None = None
    priority: Priority = "normal"
    ttl: float | None = None
    headers: Mapping[str, str] = NO_HEADERS
    delivery: int = 1
    correlation_id: str | None = None
    reply_to: str | None = None
    flags: int = 0
    expires: float = 0.0
    retry: Any = None
    receipt: Any = None
    context: Any = None
    given_id: str | None = None

    @property
    def id(self) -> str:
        """Its id, unique over processes. Given when it is first asked for: most messages never need
        one.
        """
        if self.given_id is None:
            with _numbering:
                if self.given_id is None:
                    self.given_id = f"{_ORIGIN}-{next(_numbers)}"
        return self.given_id

    @property
    def created_at(self) -> datetime:
        """When it was sent, in UTC."""
        return datetime.fromtimestamp(self.created, UTC)

    @property
    def expired(self) -> bool:
        """True if the time to live of the message is over."""
        return bool(self.flags & EXPIRES) and monotonic() > self.expires

    @property
    def cancelled(self) -> bool:
        """True if the requester has gone, or no longer waits."""
        return self.context is not None and bool(self.context.cancelled)

    def respond(self, value: Any) -> bool:
        """Answer a request before its handler returns; the result of the handler is not used then.

        Returns:
            True if a requester waited for the answer.

        Raises:
            InvalidArgument: if it has been answered already, or is not being handled.
        """
        if self.context is None:
            raise InvalidArgument(
                "respond: this message is not in a handler's hands: take the message as the handler's second parameter"
            )
        return bool(self.context.reply(value))

    def live_for(self, ttl: float | None) -> None:
        """Set its time to live, from now on."""
        self.ttl = ttl
        if ttl is None:
            self.flags &= ~EXPIRES
        else:
            self.flags |= EXPIRES
            self.expires = monotonic() + ttl

    def to_json(self) -> bytes:
        """Return its JSON form, as ``spec/messages.md`` describes it.

        Raises:
            InvalidArgument: if the payload holds something that JSON can't; the error names where.
        """
        from tidewire.agents import form

        return form.to_json(self)

    def to_msgpack(self) -> bytes:
        """Return its MessagePack form.

        Raises:
            InvalidArgument: if the payload holds something that MessagePack can't; the error names
                where.
        """
        from tidewire.agents import form

        return form.to_msgpack(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Message:
        """Read a JSON form.

        Raises:
            InvalidArgument: if it is not one; the error names the field.
        """
        from tidewire.agents import form

        return form.from_json(data)

    @classmethod
    def from_msgpack(cls, data: bytes) -> Message:
        """Read a MessagePack form.

        Raises:
            InvalidArgument: if it is not one; the error names the field.
        """
        from tidewire.agents import form

        return form.from_msgpack(data)


def raw(payload: Any, topic: str | None = None) -> Message:
    """Wrap something that was told to an agent without a message around it."""
    return Message(payload, created=time(), topic=topic)
