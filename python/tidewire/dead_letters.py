"""Messages that were given up, kept with their reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._binding import Engine


@dataclass(frozen=True)
class DeadLetter:
    """A message that was given up.

    Attributes:
        number: Its number, from 1, in the order in which letters came.
        actor: The id of the actor it was meant for.
        name: That actor's name, or None.
        reason: "failed", "expired", "cancelled", "dropped", "stopped", "abandoned" or "mailbox_full".
        error: The error of the handler as text, or None.
        at: When, in UTC.
        message: The message itself, or None where there was none (a start hook that failed).
    """

    number: int
    actor: int
    name: str | None
    reason: str
    error: str | None
    at: datetime
    message: Any


class DeadLetters:
    """The dead letters of a node: bounded, the oldest is let go first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(
        self, *, reason: str | None = None, actor: int | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """Return the letters kept, oldest first.

        Args:
            reason: Only those given up for this reason.
            actor: Only those of the actor with this id.
            limit: At most this many, the newest ones.
        """
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise InvalidArgument(f"limit: {limit!r} is not allowed: give a whole number, 0 or more")
        letters = [DeadLetter(**fields) for fields in self._engine.dead_letters()]
        chosen = [
            letter
            for letter in letters
            if (reason is None or letter.reason == reason) and (actor is None or letter.actor == actor)
        ]
        return chosen if limit is None else chosen[len(chosen) - min(limit, len(chosen)) :]

    def requeue(self, letter: DeadLetter | int) -> None:
        """Tell a letter's message to its actor again, and remove the letter.

        Raises:
            NoSuchTarget: if the letter is not there any more, or no message was kept with it.
            MailboxFull: if the actor has no room; the letter stays.
            ActorStopped: if the actor has stopped; the letter stays.
        """
        self._engine.requeue(_number(letter))

    def drop(self, letter: DeadLetter | int | None = None) -> int:
        """Remove one letter, or all of them. Return how many there were."""
        return self._engine.drop_letters() if letter is None else int(self._engine.drop_letter(_number(letter)))

    def __len__(self) -> int:
        return self._engine.dead_letter_count()

    def __repr__(self) -> str:
        return f"<DeadLetters {len(self)}>"


def _number(letter: DeadLetter | int) -> int:
    return letter.number if isinstance(letter, DeadLetter) else letter
