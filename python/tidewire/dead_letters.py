"""Dead letters: undeliverable messages, stored with their reason."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidewire.errors import InvalidArgument, TidewireError

if TYPE_CHECKING:
    from tidewire._binding import Engine

POOL = "pool:"
"""Prefix of the address of a pool, before its name."""


@dataclass(frozen=True)
class DeadLetter:
    """An undeliverable message, with the reason.

    Attributes:
        number: Its number, from 1, in order of arrival.
        actor: The id of the recipient; for an agent of another node, an id that no actor has.
        name: The name of that actor or agent, or None.
        reason: "failed", "expired", "cancelled", "dropped", "stopped", "abandoned" or
            "mailbox_full".
        error: The error of the handler as text, or None.
        traceback: Traceback of the handler's error as text, or None.
        at: Time at which the letter was stored, in UTC.
        message: The message, or None without one (a start hook that failed).
    """

    number: int
    actor: int
    name: str | None
    reason: str
    error: str | None
    traceback: str | None
    at: datetime
    message: Any


class DeadLetters:
    """The dead letters of a node: bounded, the oldest is dropped first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(
        self, *, reason: str | None = None, actor: int | None = None, name: str | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """Return the stored letters, oldest first.

        Args:
            reason: Only letters with this reason.
            actor: Only letters of the actor with this id.
            name: Only letters of the actor, the agent or the pool with this name.
            limit: Most letters to return: the newest ones.

        Raises:
            InvalidArgument: if a value is not allowed.
        """
        if reason is not None and not isinstance(reason, str):
            raise InvalidArgument(f"reason: {reason!r} is not allowed: give the name of a reason, or None for all")
        _whole_or_none("actor", actor, "give the id of an actor, which is ref.id, or None for all")
        _whole_or_none("limit", limit, "give a whole number, 0 or more, or None for all")
        letters = [DeadLetter(**fields) for fields in self._engine.dead_letters()]
        matching = [
            letter
            for letter in letters
            if (reason is None or letter.reason == reason)
            and (actor is None or letter.actor == actor)
            and (name is None or letter.name in (name, f"{POOL}{name}"))
        ]
        return matching if limit is None else matching[len(matching) - min(limit, len(matching)) :]

    def requeue(self, letter: DeadLetter | int) -> None:
        """Send the message of a letter to its actor again, and remove the letter.

        Raises:
            InvalidArgument: if it is neither a letter nor a number.
            NoSuchTarget: if the letter no longer exists, or has no message.
            MailboxFull: if the mailbox of the actor is full; the letter stays.
            ActorStopped: if the actor has stopped; the letter stays.
        """
        if isinstance(letter, DeadLetter) and letter.reason == "expired" and hasattr(letter.message, "live_for"):
            # Renew the TTL: an expired message would expire again at once.
            letter.message.live_for(letter.message.ttl)
        self._engine.requeue(_number(letter))

    def requeue_all(self, *, reason: str | None = None, name: str | None = None) -> int:
        """Send all messages, or those with a reason or a recipient, to their actors again. Refused
        ones stay dead letters.

        Returns:
            Number of messages that were sent again.
        """
        sent = 0
        for letter in self.list(reason=reason, name=name):
            with contextlib.suppress(TidewireError):
                self.requeue(letter)
                sent += 1
        return sent

    def drop(self, letter: DeadLetter | int | None = None) -> int:
        """Remove one letter, or all of them. Return the number of removed letters.

        Raises:
            InvalidArgument: if it is neither a letter, nor a number, nor None.
        """
        return self._engine.drop_letters() if letter is None else int(self._engine.drop_letter(_number(letter)))

    def __len__(self) -> int:
        return self._engine.dead_letter_count()

    def __repr__(self) -> str:
        return f"<DeadLetters {len(self)}>"


def _whole_or_none(field: str, value: object, fix: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidArgument(f"{field}: {value!r} is not allowed: {fix}")


def _number(letter: DeadLetter | int) -> int:
    return letter.number if isinstance(letter, DeadLetter) else letter
