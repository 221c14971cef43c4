"""Inbound call of a service instance."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeAlias

from tidewire._binding import InboundCallRun
from tidewire._trace_context import fields_of, running

if TYPE_CHECKING:
    from contextvars import Token

    from tidewire.services.contract.methods import Bound
    from tidewire.services.instance_transport import Request


class Failure:
    """Exception of a handler, as a reply: the error belongs to the caller and not to the actor that
    ran the handler.
    """

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class InboundCall:
    """A call at its instance, from the moment in which it was sent there."""

    __slots__ = (
        "_began_ns",
        "_interrupted",
        "_loop",
        "_task",
        "begun",
        "cancelled",
        "closing",
        "instance",
        "method",
        "reason",
        "request",
    )

    def __init__(self, request: Request, method: Bound, instance: str) -> None:
        self.request = request
        self.method = method
        self.instance = instance
        self.begun = self.cancelled = self.closing = self._interrupted = False
        self.reason: BaseException | None = None
        self._task: asyncio.Task[object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> Token[AnyRunning | None]:
        """Say that the handler begins on this thread. ``leave`` takes what this returns."""
        self.begun, self._began_ns = True, perf_counter_ns()
        return running.set(self)

    def enter_task(self) -> Token[AnyRunning | None]:
        """Say that the handler begins in this task, which ``cancel`` cancels."""
        self._task = task = asyncio.current_task()
        assert task is not None
        self._loop = task.get_loop()
        return self.enter()

    def leave(self, token: Token[AnyRunning | None]) -> None:
        """Say that the handler has ended. The task that was cancelled for it goes on with other
        calls.
        """
        task, self._task = self._task, None
        running.reset(token)
        if self._interrupted and task is not None:
            task.uncancel()

    def cancel(self, reason: BaseException | None = None) -> None:
        """Cancel the handler, from whichever thread. A plain function sees it in its context; a
        coroutine is interrupted.

        Args:
            reason: Error for the caller, if it still waits.
        """
        if self.cancelled:
            return
        self.reason = reason
        self.cancelled = True
        loop = self._loop
        if loop is not None:
            # A loop that is closed runs no handler any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._interrupt)

    def took_us(self) -> int:
        """Return how many microseconds ago its handler began."""
        return (perf_counter_ns() - self._began_ns) // 1_000

    def forget(self) -> None:
        """Release the arguments: the handler will not begin."""
        # Other instances may have the same request.
        self.request = request = copy.copy(self.request)
        request.args, request.kwargs, request.feeds = (), {}, []

    @property
    def trace_fields(self) -> dict[str, str]:
        """The headers of its trace context, for all that is sent in it."""
        return fields_of(self.request.headers)

    @property
    def was_interrupted(self) -> bool:
        """True if this call raised the CancelledError that ended the handler."""
        return self._interrupted

    def _interrupt(self) -> None:
        # Here no task runs, so that the handler is either suspended, and gets the error where it
        # is, or has left.
        if self._task is not None and not self.closing:
            self._interrupted = True
            self._task.cancel()


AnyRunning: TypeAlias = InboundCall | InboundCallRun
"""A call under way, sent from this process or from another one."""
