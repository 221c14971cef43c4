"""Blocking form of a node, for plain threads and plain handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar

from tidewire._binding import ActorRef, send_blocking
from tidewire._node import idle, statistics_wait
from tidewire._node.streams import Streams
from tidewire._node.subjects import Subjects
from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import Blocking, blocking, blocking_form, refuse_loop
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._binding import Timer
    from tidewire._node.ledger import Ledger
    from tidewire.services.instance_watch import InstanceChange
    from tidewire.streams.command_run import SyncCommandRun
    from tidewire.streams.lease import SyncLease

_M = TypeVar("_M")
_R = TypeVar("_R")


class Sync(Blocking[Any]):
    """Blocking calls, at ``node.sync``.

    While a call blocks a plain handler, another thread runs the other actors.
    """

    commands = blocking(Streams.commands)
    kv = blocking_form(Streams.kv)
    request = blocking(Subjects.request)
    stream = blocking_form(Streams.stream)

    def lease(self, name: str, **options: Any) -> SyncLease:
        """Return a lease; see ``node.lease``."""
        from tidewire.streams.lease import SyncLease

        return SyncLease(self._node.lease(name, **options), self._node)

    def command(self, id: str) -> SyncCommandRun[Any]:
        """Return a command by its id; see ``node.command``."""
        return self._node.command(id).sync

    def watch_services(self, name: str | None = None) -> Iterator[InstanceChange]:
        """Yield the instances of a service, or of all, and then each change; see
        ``node.watch_services``.
        """
        from tidewire.services import instance_watch

        instance_watch.check(name)
        return instance_watch.watch_blocking(self._node, name)

    send = staticmethod(send_blocking)
    """``send(ref, message, priority="normal")``: send a message, and block while the mailbox is
    full.

    Returns True, or False if the mailbox has dropped the message. Raises MailboxFull if the mailbox
    is full and its policy is to fail, and ActorStopped if the actor is stopping or has stopped.
    """

    def ask(self, ref: ActorRef[_M, _R], message: _M, timeout: float | EllipsisType | None = ...) -> _R:
        """Ask an actor, and block until it replies; see ``ActorRef.ask``."""
        refuse_loop("ask")
        return _actor(ref).ask(message, timeout).wait()  # type: ignore[no-any-return]

    def until(self, condition: Callable[[dict[str, Any]], object], timeout: float | None = None) -> dict[str, Any]:
        """Block until the statistics meet a condition, and return them; see ``node.until``."""
        refuse_loop("until")
        return steps.blocking(statistics_wait.node_fits(self._node, condition, timeout))

    def idle(self, timeout: float | None = None) -> None:
        """Block until the node is idle; see ``node.idle``."""
        refuse_loop("idle")
        idle.check(self._node, timeout)
        steps.blocking(idle.wait_steps(self._node, timeout))

    def stop(self, ref: ActorRef, drain: bool = True, timeout: float | EllipsisType | None = ...) -> Ledger:
        """Stop an actor, and block until it has stopped; see ``ActorRef.stop``."""
        refuse_loop("stop")
        return _actor(ref).stop(drain, timeout).wait()

    def outcome(self, timer: Timer) -> str:
        """Block until a timer is delivered or cancelled, and return its outcome."""
        refuse_loop("outcome")
        return timer.outcome().wait()


def _actor(ref: object) -> ActorRef:
    if not isinstance(ref, ActorRef):
        raise InvalidArgument(f"ref: {ref!r} is not an actor: give the result of node.spawn(...) or node.lookup(...)")
    return ref
