"""The call context of a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING

from tidewire._runtime.task import RunningTask, check_report, running_task
from tidewire._trace_context import running
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire.services.instances.inbound_call import AnyRunning

fences: dict[tuple[str, str], Callable[[], int]] = {}
"""Fencing tokens of single-active instances, by service and id."""


class CallContext:
    """The call that a handler runs for: ``tw.context()``, or a parameter annotated as
    ``tw.CallContext``. In the worker of a pool it is the task, with ``cancelled`` and
    ``progress``; all other attributes raise InvalidArgument there.
    """

    __slots__ = ("_running",)

    def __init__(self, of: AnyRunning | RunningTask) -> None:
        self._running = of

    @property
    def service(self) -> str:
        """The service that was called."""
        return self._running.request.service

    @property
    def method(self) -> str:
        """The method that was called; for an event, the method that handles it."""
        return self._running.request.method

    @property
    def instance(self) -> str:
        """The instance of the service that handles the call."""
        return self._running.instance

    @property
    def fence(self) -> int:
        """The fencing token of an instance that is served with ``active="single"``: greater than
        the tokens of all instances that were active before.

        Raises:
            LeaseLost: if the instance is no longer the active one.
            InvalidArgument: if it is served in another way.
        """
        found = fences.get((self.service, self.instance))
        if found is None:
            raise InvalidArgument(
                f'fence: {self.service!r} has none: it is for services with one active instance, serve(..., active="single")'
            )
        return found()

    @property
    def subject(self) -> str | None:
        """The subject of the event, or None in a call."""
        return self._running.request.subject

    @property
    def node(self) -> str:
        """The name of the calling node."""
        return self._running.request.node

    @property
    def user(self) -> str | None:
        """The user of the call, or None without a token."""
        return self._running.request.user

    @property
    def origin(self) -> str:
        """Origin of the call: "node" (this node), "private" (another one) or "public" (HTTP)."""
        return self._running.request.origin

    @property
    def trace(self) -> str:
        """The trace id, 32 hex digits: all calls of one chain share it."""
        return self._running.request.trace

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that the caller added to the call."""
        return self._running.request.headers

    @property
    def deadline(self) -> float | None:
        """Deadline of the call on the clock of ``time.monotonic()``, or None for a stream without
        one.
        """
        return self._running.request.deadline

    @property
    def remaining(self) -> float | None:
        """Seconds to the deadline, 0 after it, or None without one."""
        deadline = self._running.request.deadline
        return None if deadline is None else max(0.0, deadline - monotonic())

    @property
    def cancelled(self) -> bool:
        """True if the caller no longer waits for the result. A coroutine is cancelled then; a plain
        function can check this.
        """
        if isinstance(self._running, RunningTask):
            return self._running.is_cancelled()
        return self._running.cancelled or self.remaining == 0.0

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Report the progress of a task in the worker of a pool: ``on_progress`` of its submitter
        gets the newest report. It does not wait.

        Args:
            fraction: From 0 to 1.
            note: Text for people, at most 1,024 letters.

        Raises:
            InvalidArgument: if an argument is not allowed, or this is no task of a pool.
            asyncio.CancelledError: if the task was cancelled.
        """
        if not isinstance(self._running, RunningTask):
            raise InvalidArgument("progress: this is no task of a pool: a command takes a tw.Progress for it")
        note = "" if note is None else note
        check_report(fraction, note)
        if self.cancelled:
            from asyncio import CancelledError

            raise CancelledError("the task of the pool was cancelled")
        self._running.report(float(fraction), note)

    def __repr__(self) -> str:
        if isinstance(self._running, RunningTask):
            return "<CallContext of a task of a pool>"
        return f"<CallContext {self.service}.{self.method} from {self.node!r}>"


def context() -> CallContext:
    """Return the context of the call, or of the task of a pool, in which this code runs.

    Raises:
        InvalidArgument: outside of calls and tasks.
    """
    found, task = running.get(), running_task.get()
    if found is None and task is None:
        raise InvalidArgument(
            "context: no call is under way here: use it in a method of a service, the function of a pool, or their tasks"
        )
    return CallContext(found or task())  # type: ignore[misc]
