"""Reply to a call of this process: the handler's result, or an error that names the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewire._runtime.steps import Procedure
from tidewire.errors import ActorStopped, AskTimeout, MailboxFull, TidewireError
from tidewire.services.instance_transport import Refused
from tidewire.services.instances.inbound_call import Failure, InboundCall

if TYPE_CHECKING:
    from tidewire._binding import Pending, WorkerCall
    from tidewire._runtime.steps import Steps
    from tidewire.services.instances.instance import ServiceInstance


class LocalReply(Procedure[Any]):
    """The reply of a call to a service instance of this process."""

    __slots__ = ("_instance", "_job", "_pending", "_running")

    def __init__(
        self, instance: ServiceInstance, pending: Pending, running: InboundCall, job: WorkerCall | None
    ) -> None:
        self._instance = instance
        self._pending = pending
        self._running = running
        self._job = job

    def _steps(self) -> Steps[Any]:
        try:
            value = yield self._pending
        except BaseException as error:  # noqa: BLE001
            self.cancel()
            try:
                if isinstance(error, TidewireError):
                    raise call_error(self._instance, self._running, error) from None
                raise
            finally:
                # The traceback keeps this frame, and with it the call until the garbage collector
                # runs.
                del self
        if value.__class__ is Failure:
            try:
                raise value.error
            finally:
                del self, value
        return value

    def cancel(self) -> None:
        """Cancel the call; see ``Reply``."""
        self._running.cancel()
        self._pending.cancel()
        if not self._running.begun:
            # The message stays in the mailbox, and may become a dead letter: without its
            # arguments.
            self._running.forget()
            if self._job is not None:
                self._job.over()


def call_error(instance: ServiceInstance, running: InboundCall, error: TidewireError) -> TidewireError:
    """Return the error of a call for an error of the engine, which names an actor."""
    request = running.request
    if isinstance(error, AskTimeout):
        return late(request.title, running.instance, running.begun, request.blocked_ms, error.reason)
    if isinstance(error, ActorStopped):
        kind = ActorStopped if running.begun else Refused
        return kind(f"{request.title}: the instance {running.instance!r} has stopped: call another, or serve it again")
    if isinstance(error, MailboxFull):
        error = MailboxFull(
            f"{request.title}: too many calls wait for the instance {running.instance!r}, "
            f"service_waiting={instance.capacity.waiting}: try again, or serve more of them"
        )
        # Another instance can have the call.
        vars(error)["untaken"] = True
    return error


def late(title: str, instance: str, begun: bool, blocked_ms: int | None, cause: str | None = None) -> AskTimeout:
    """Return the error of a call whose deadline has passed before its reply."""
    state = "its handler was running, and is cancelled" if begun else "its handler had not begun"
    return AskTimeout(
        f"{title}: no answer in time from the instance {instance!r}, {state}: "
        f"{cause or 'allow more with with_(timeout=...), or look at the statistics of the service'}",
        blocked_ms=blocked_ms,
        reason=cause,
    )
