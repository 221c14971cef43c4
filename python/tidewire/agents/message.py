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

# Bits of Message.flags. A message without any is handled as its bare payload.
# IS_ASKED: the sender sent a bare payload, and waits for a reply.
EXPIRES, HAS_RECEIPT, IS_CONTEXT, IS_AGAIN, IS_ASKED = 1, 2, 4, 8, 16

_numbers = itertools.count(1)
_numbering = lock()
_ORIGIN = os.urandom(6).hex()


def _renew_origin() -> None:
    """Give a forked child an origin of its own, so that its message ids are unique."""
    global _ORIGIN
    _ORIGIN = os.urandom(6).hex()


in_child(_renew_origin)


class Message(msgspec.Struct, eq=False, repr_omit_defaults=True, gc=True):
    """A message between agents. A handler receives it as its second parameter.

    Attributes:
        payload: Payload of any type. Within one process it is the sent object itself.
        kind: "request", "response", "event", "broadcast", "context", "status" or "error".
        sender: Id of the sending agent; empty if no agent sent it.
        created: Time of sending, in seconds since 1970-01-01 UTC; ``created_at`` is the same as a
            datetime.
        recipients: Ids of the recipients.
        topic: Topic of a published message, or None.
        priority: "urgent", "high", "normal" or "low".
        ttl: Time to live in seconds after its creation, or None for no limit.
        headers: Further data of the message besides the payload.
        delivery: Number of this attempt to handle it, from 1.
        correlation_id: Id of the message that this one belongs to, or None.
        reply_to: Id of the agent that receives the reply, or None.
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
        """Id of the message, unique across processes. It is made on first use, as most messages
        need none.
        """
        if self.given_id is None:
            with _numbering:
                if self.given_id is None:
                    self.given_id = f"{_ORIGIN}-{next(_numbers)}"
        return self.given_id

    @property
    def created_at(self) -> datetime:
        """Time of sending, in UTC."""
        return datetime.fromtimestamp(self.created, UTC)

    @property
    def expired(self) -> bool:
        """True if the time to live of the message has passed."""
        return bool(self.flags & EXPIRES) and monotonic() > self.expires

    @property
    def cancelled(self) -> bool:
        """True if the requester has left, or has stopped waiting."""
        return self.context is not None and bool(self.context.cancelled)

    def respond(self, value: Any) -> bool:
        """Reply to a request before its handler returns. The return value of the handler is then
        ignored.

        Returns:
            True if a requester waited for the reply.

        Raises:
            InvalidArgument: if there was a reply already, or no handler runs for the message.
        """
        if self.context is None:
            raise InvalidArgument(
                "respond: this message is not in a handler's hands: take the message as the handler's second parameter"
            )
        return bool(self.context.reply(value))

    def live_for(self, ttl: float | None) -> None:
        """Set the time to live, starting now."""
        self.ttl = ttl
        if ttl is None:
            self.flags &= ~EXPIRES
        else:
            self.flags |= EXPIRES
            self.expires = monotonic() + ttl

    def to_json(self) -> bytes:
        """Encode the message as JSON, as ``spec/messages.md`` specifies.

        Raises:
            InvalidArgument: if JSON can't represent the payload; the error names the place.
        """
        from tidewire.agents import form

        return form.to_json(self)

    def to_msgpack(self) -> bytes:
        """Encode the message as MessagePack.

        Raises:
            InvalidArgument: if MessagePack can't represent the payload; the error names the place.
        """
        from tidewire.agents import form

        return form.to_msgpack(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Message:
        """Decode a message from JSON.

        Raises:
            InvalidArgument: if the data is not a message; the error names the field.
        """
        from tidewire.agents import form

        return form.from_json(data)

    @classmethod
    def from_msgpack(cls, data: bytes) -> Message:
        """Decode a message from MessagePack.

        Raises:
            InvalidArgument: if the data is not a message; the error names the field.
        """
        from tidewire.agents import form

        return form.from_msgpack(data)


def raw(payload: Any, topic: str | None = None) -> Message:
    """Wrap a bare payload in a message."""
    return Message(payload, created=time(), topic=topic)
