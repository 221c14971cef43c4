"""The blocking form of a node, for plain threads and for handlers that are plain functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar

from tidewire import _idle, _statistics_wait, _steps
from tidewire._binding import ActorRef, send_blocking
from tidewire._blocking import run
from tidewire._current import running_loop
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._binding import Pending, Timer
    from tidewire._ledger import Ledger
    from tidewire.node import Node
    from tidewire.services.instance_watch import InstanceChange
    from tidewire.streams.blocking_streams import SyncBucket, SyncLease, SyncStream
    from tidewire.streams.command_run import SyncCommandRun
    from tidewire.streams.command_store import CommandInfo

_M = TypeVar("_M")
_R = TypeVar("_R")


class Sync:
    """Blocking calls, at ``node.sync``. Not for the thread of an event loop: there, ``await`` the
    same thing.

    Inside a handler that is a plain function, a call that blocks lets another thread look after the
    other actors.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def stream(self, name: str, **options: Any) -> SyncStream:
        """Make a stream, or find it, for plain threads. Arguments and errors are those of
        ``node.stream``.
        """
        from tidewire.streams.blocking_streams import SyncStream

        return SyncStream(run(self._node, self._node.stream(name, **options)), self._node)

    def kv(self, name: str, **options: Any) -> SyncBucket:
        """Make a bucket, or find it, for plain threads. Arguments and errors are those of
        ``node.kv``.
        """
        from tidewire.streams.blocking_streams import SyncBucket

        return SyncBucket(run(self._node, self._node.kv(name, **options)), self._node)

    def lease(self, name: str, **options: Any) -> SyncLease:
        """Return a lease for plain threads. Arguments and errors are those of ``node.lease``."""
        from tidewire.streams.blocking_streams import SyncLease

        return SyncLease(self._node.lease(name, **options), self._node)

    def command(self, id: str) -> SyncCommandRun[Any]:
        """Return a command by its id, for plain threads; see ``node.command``."""
        return self._node.command(id).sync

    def commands(self, **options: Any) -> list[CommandInfo]:
        """Return the commands there are, the oldest first. Arguments and errors are those of
        ``node.commands``.
        """
        return run(self._node, self._node.commands(**options))

    def watch_services(self, name: str | None = None) -> Iterator[InstanceChange]:
        """Yield the instances of a service, or of all, and then whichever come and go; see
        ``node.watch_services``.
        """
        from tidewire.services import instance_watch

        instance_watch.check(name)
        return instance_watch.watch_blocking(self._node, name)

    send = staticmethod(send_blocking)
    """``send(ref, message, priority="normal")``: send a message, and block while the mailbox is
    full.

    Gives True, or False if a mailbox that drops new messages has let it go. Raises MailboxFull if
    the mailbox is full and its policy is to fail, and ActorStopped if the actor takes no more
    messages.
    """

    def ask(self, ref: ActorRef[_M, _R], message: _M, timeout: float | EllipsisType | None = ...) -> _R:
        """Ask an actor, and block until it replies.

        Raises:
            AskTimeout: if no reply came within ``timeout`` seconds; without it, the configuration's
                ``ask_timeout_ms``.
            AskCycle: if the actors would wait for each other in a ring.
            ActorStopped: if the actor takes no more messages.
            BaseException: whatever the handler raised.
        """
        return _wait(_actor(ref).ask(message, timeout))  # type: ignore[no-any-return]

    def request(
        self,
        subject: str,
        message: Any,
        timeout: float | EllipsisType | None = ...,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request to a subscriber of ``subject``, and block until it replies. Raises as
        ``ask`` does, and NoResponders.
        """
        return _wait(self._node.request(subject, message, timeout=timeout, headers=headers))

    def until(self, condition: Callable[[dict[str, Any]], object], timeout: float | None = None) -> dict[str, Any]:
        """Block until the statistics of the node fit a condition, and return them, as
        ``node.until`` does.
        """
        if running_loop() is not None:
            raise InvalidArgument("node.sync would block this thread's event loop: await the same call without .sync")
        return _steps.blocking(_statistics_wait.fits(self._node, condition, timeout))

    def idle(self, timeout: float | None = None) -> None:
        """Block until the node has nothing to do, as ``node.idle`` waits for it. Raises as that
        does.
        """
        if running_loop() is not None:
            raise InvalidArgument("node.sync would block this thread's event loop: await the same call without .sync")
        _idle.check(self._node, timeout)
        _steps.blocking(_idle.quiet(self._node, timeout))

    def stop(self, ref: ActorRef, drain: bool = True, timeout: float | EllipsisType | None = ...) -> Ledger:
        """Stop an actor, and block until it has stopped or the time is up; the configuration's
        ``stop_timeout_ms`` if none is given.
        """
        result: Ledger = _wait(_actor(ref).stop(drain, timeout))
        return result

    def outcome(self, timer: Timer) -> str:
        """Block until a timer was delivered or cancelled, and return which."""
        result: str = _wait(timer.outcome())
        return result


def _actor(ref: object) -> ActorRef:
    if not isinstance(ref, ActorRef):
        raise InvalidArgument(f"ref: {ref!r} is not an actor: give what node.spawn(...) or node.lookup(...) returned")
    return ref


def _wait(pending: Pending) -> Any:
    if running_loop() is not None:
        pending.cancel()
        raise InvalidArgument("node.sync would block this thread's event loop: await the same call without .sync")
    return pending.wait()
