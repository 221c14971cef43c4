"""Subscriptions of a node over its link."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidewire._binding import RemoteMessage
from tidewire._log import log
from tidewire.errors import TidewireError

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, Engine, Pending, RemoteCall

_REMOTE_ERROR, _ACTOR_STOPPED = 15, 2


class ActorSubscription:
    """One subscription of an actor, at the hub.

    The compiled part delivers to the mailbox of an actor with backpressure, and calls this once the
    actor has stopped.

    Args:
        engine: The engine of the node.
        actor: The subscribed actor.
        on_stopped: Called when the actor has stopped, to unsubscribe.
    """

    def __init__(self, engine: Engine, actor: ActorRef, on_stopped: Callable[[ActorSubscription], None]) -> None:
        self.actor = actor
        self._engine = engine
        self._on_stopped = on_stopped

    def __call__(self, inbound: RemoteMessage | RemoteCall) -> None:
        """Deliver an inbound message, or a request whose reply is the result of the handler."""
        if not self.actor.alive:
            self._on_stopped(self)
            if not isinstance(inbound, RemoteMessage):
                inbound.refuse(_ACTOR_STOPPED, f"{inbound.subject}: the actor that was subscribed has stopped")
        elif isinstance(inbound, RemoteMessage):
            self._deliver(inbound)
        else:
            self._ask(inbound)

    def _deliver(self, message: RemoteMessage) -> None:
        value = message.value()
        if not self._engine.deliver(self.actor, message.subject, value, message.headers, message.node):
            self._engine.give_up(self.actor, value, "mailbox_full", None)

    def _ask(self, call: RemoteCall) -> None:
        try:
            pending = self._engine.ask_on(self.actor, call.subject, call.value(), call.headers, call.left, call.node)
        except TidewireError as error:
            fail(call, error)
            return
        call.on_cancel(pending.cancel)
        pending.add_done_callback(lambda done: answer(call, done))


def answer(call: RemoteCall, done: Pending) -> None:
    """Reply to a call with the outcome of an operation."""
    if done.cancelled():
        return
    error = done.exception()
    if error is not None:
        fail(call, error)
        return
    try:
        call.reply(done.result())
    # The requester also receives the error of an unsendable reply.
    except Exception as send_error:  # noqa: BLE001
        fail(call, send_error)


def fail(call: RemoteCall, error: Any) -> None:
    """Reply to a call with an error."""
    try:
        call.fail(error)
    except Exception as send_error:  # noqa: BLE001
        text = "%(subject)s: the error %(error)r could not be sent: %(reason)s"
        log.warning("call.error_not_sent", text, subject=call.subject, error=error, reason=send_error)
        call.refuse(_REMOTE_ERROR, f"{type(error).__name__}: the error itself could not be sent")
