"""Stop report: final counts of messages and actors."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidewire._runtime.stacks import stacks


@dataclass(frozen=True)
class Stuck:
    """An actor that was still in its handler at the deadline of its stop.

    Attributes:
        actor: Its id.
        name: Its name, or None.
        dispatcher: The name of its dispatcher.
        thread: The thread that ran it last.
        awaiting: True if its coroutine is suspended, so that it occupies no thread.
        where: Its stack as lines of code, innermost last; empty if unknown.
    """

    actor: int
    name: str | None
    dispatcher: str
    thread: str | None
    awaiting: bool
    where: tuple[str, ...] = ()

    def __str__(self) -> str:
        title = f"{self.name} (#{self.actor})" if self.name else f"#{self.actor}"
        if self.awaiting:
            return f"actor {title} is stuck: its coroutine waits for something"
        place = f" at {self.where[-1]}" if self.where else ""
        return f"actor {title} on {self.thread or self.dispatcher} is stuck in its handler{place}"


@dataclass(frozen=True)
class Ledger:
    """Stop report: the outcome of all accepted messages: ``accepted == handled + returned +
    dead_lettered``.

    Attributes:
        accepted: Messages that mailboxes accepted.
        handled: Messages handled without failure.
        returned: Messages returned to the caller of ``stop(drain=False)``.
        dead_lettered: Messages that became dead letters.
        messages: The returned messages, in order.
        reason: Reason of the actor's termination, or "shutdown".
        stuck: Actors that were stuck in their handlers at the deadline.
        threads: Names of the threads that they block.
    """

    accepted: int
    handled: int
    returned: int
    dead_lettered: int
    messages: tuple[Any, ...] = field(default=(), repr=False)
    reason: str = "stopped"
    stuck: tuple[Stuck, ...] = ()
    threads: tuple[str, ...] = ()

    @property
    def balanced(self) -> bool:
        """True if every accepted message is accounted for."""
        return self.accepted == self.handled + self.returned + self.dead_lettered

    @classmethod
    def total(cls, ledgers: Sequence[Ledger]) -> Ledger:
        """Return the sum of ledgers, with the reason of the first."""
        first, *others = ledgers
        if not others:
            return first
        return cls(
            accepted=sum(one.accepted for one in ledgers),
            handled=sum(one.handled for one in ledgers),
            returned=sum(one.returned for one in ledgers),
            dead_lettered=sum(one.dead_lettered for one in ledgers),
            messages=tuple(message for one in ledgers for message in one.messages),
            reason=first.reason,
            stuck=tuple(stuck for one in ledgers for stuck in one.stuck),
            threads=tuple(thread for one in ledgers for thread in one.threads),
        )

    def __str__(self) -> str:
        text = (
            f"{self.accepted:,} accepted = {self.handled:,} handled + {self.returned:,} returned "
            f"+ {self.dead_lettered:,} dead-lettered"
        )
        return "\n".join([text, *(str(stuck) for stuck in self.stuck)])


@dataclass(frozen=True)
class Terminated:
    """The message that a watcher receives when a watched actor has stopped.

    Attributes:
        actor: The id of the actor.
        name: Its name, or None.
        reason: Reason, such as "stopped", "failed: ValueError: no" or "restart_limit: ...".
    """

    actor: int
    name: str | None
    reason: str


def make(
    counts: tuple[int, int, int, int],
    messages: Sequence[Any],
    stuck: Sequence[dict[str, Any]],
    reason: str,
    threads: Sequence[str],
) -> Ledger:
    """Make a stop report from the values of the binding."""
    lines = _stacks({fields["thread"] or "" for fields in stuck if not fields["awaiting"]})
    return Ledger(
        *counts,
        messages=tuple(messages),
        reason=reason,
        stuck=tuple(
            Stuck(**fields, where=() if fields["awaiting"] else lines.get(fields["thread"] or "", ()))
            for fields in stuck
        ),
        threads=tuple(threads),
    )


def _stacks(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the Python stacks of dispatcher threads, by their names."""
    idents = {name: _threads[name] for name in names if name in _threads}
    found = stacks(idents.values())
    return {name: found[ident] for name, ident in idents.items() if ident in found}


_threads: dict[str, int] = {}


def thread_started(name: str) -> None:
    """Record the identity of a dispatcher thread. The binding calls this on that thread."""
    _threads[name] = threading.get_ident()


def thread_ended(name: str) -> None:
    """Forget a dispatcher thread."""
    _threads.pop(name, None)
