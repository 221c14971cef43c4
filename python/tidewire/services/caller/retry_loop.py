"""Retry loop of a call: the next instance, the errors that allow a retry, and the pauses."""

from __future__ import annotations

import random
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from tidewire import _trace_context
from tidewire._binding import Retry
from tidewire._runtime.steps import Procedure
from tidewire.errors import LinkLost, MailboxFull, NodeStopped, NoResponders, Overloaded, TidewireError
from tidewire.services.caller.argument_streams import has_streams
from tidewire.services.instance_transport import InstanceTransport, Refused, Request

if TYPE_CHECKING:
    from tidewire._binding import CallLoad, Pending
    from tidewire._runtime.steps import Steps
    from tidewire.services.caller.outbound_call import OutboundCall
    from tidewire.services.registry import Group


class RetryLoop:
    """The attempts of one call.

    Args:
        call: The call.
        group: The candidate instances.
        request: The request of the call.
        ago_s: Seconds since its first attempt.
    """

    __slots__ = ("_ago_s", "_call", "_port", "_retry", "_seen", "_since", "_wait_s", "_why", "group", "load", "request")

    def __init__(self, call: OutboundCall, group: Group, request: Request, ago_s: float = 0.0) -> None:
        self._call = call
        self._ago_s = ago_s
        self.group = group
        self.request = request
        # Set by the first failed attempt.
        self._retry: Retry | None = None
        # Error to raise when no instance is left.
        self._why: TidewireError | None = None
        self._wait_s, self._seen = 0.0, 0

    def steps(self) -> Steps[Any]:
        """Send the call until an attempt succeeds, and return the result."""
        spans = _trace_context.spans
        return self._attempts() if spans is None else spans.call(self.request, self._attempts(), self._call.span)

    def _attempts(self) -> Steps[Any]:
        began, failure, request = perf_counter() - self._ago_s, "", self.request
        try:
            while True:
                port = self.next()
                if port is None:
                    yield self.pause()
                    continue
                try:
                    reply = port.call(request)
                    value = (yield from reply._steps()) if isinstance(reply, Procedure) else (yield reply)
                except BaseException as error:
                    if not self.failed(error):
                        raise
                    continue
                self.group.ended(port.instance, self.load, perf_counter() - self._since)
                return self._call.convert_result(port, value)
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            took_us = int((perf_counter() - began) * 1e6)
            self._call.registry.node._engine.took("client", f"{request.service}/{request.method}", failure, took_us)

    def next(self) -> InstanceTransport | None:
        """Begin an attempt, and return its transport; None: await ``pause`` first."""
        call = self._call
        self._seen = call.registry.change_counter.count
        if self._retry is None:
            self._port, self.load = self.group.choose(call)
        else:
            try:
                self.group = call.group()
                self._port, self.load = self.group.choose(call, self._retry, self._why)
            except TidewireError as error:
                wait_s = None if is_final(error) else self._retry.nobody(monotonic())
                if wait_s is not None:
                    self._wait_s = wait_s
                    return None
                why, self._why = self._why, None
                if why is None or why is error:
                    raise
                try:
                    raise why from error
                finally:
                    # The traceback keeps this frame.
                    del why
        self._since = perf_counter()
        return self._port

    def pause(self) -> Pending:
        """Return the wait before the next attempt: a change of the instances ends it."""
        return self._call.registry.pause(self._wait_s, self._seen)

    def failed(self, error: BaseException) -> bool:
        """Record the error of the attempt, and return True if another one follows. If not, the
        caller raises the error: a frame of this class would keep it alive.
        """
        note(self.group, self._port, self.load, self._since, error)
        return self._goes_on(self._port, error)

    def resume(self, port: InstanceTransport, error: BaseException) -> Steps[Any] | None:
        """Return the steps after a failed first attempt of the fast path; None: the error is the
        outcome of the call.
        """
        return self.steps() if self._goes_on(port, error) else None

    def _goes_on(self, port: InstanceTransport, error: BaseException) -> bool:
        is_overload = isinstance(error, (MailboxFull, Overloaded))
        if is_final(error) or (is_overload and has_streams(self._call.args, self._call.kwargs)):
            return False
        if self._retry is None:
            resends = self._call.registry.node.links.link_resends
            self._retry = Retry(self.request.deadline, resends, random.getrandbits(64))
        if _is_refusal(error):
            self._retry.refused(port.instance, is_overload)
        elif not (self._call.is_idempotent(self.group) and self._retry.lost(port.instance, monotonic())):
            return False
        is_open = self._why is None or isinstance(self._why, NodeStopped)
        if isinstance(error, LinkLost) or (is_open and isinstance(error, (MailboxFull, NodeStopped, Overloaded))):
            self._why = error
        return True


def note(group: Group, port: InstanceTransport, load: CallLoad, since: float, error: BaseException) -> None:
    """Record a failed call of an instance. Refused and cancelled calls do not count as failures."""
    if _is_refusal(error) or not isinstance(error, Exception):
        group.ended(port.instance, load, None)
    else:
        group.ended(port.instance, load, perf_counter() - since, failed=True)


def is_final(error: BaseException) -> bool:
    """Return True if the error allows no retry at any instance."""
    return not _is_refusal(error) and not _is_loss(error)


def _is_refusal(error: BaseException) -> bool:
    """Return True if the instance did not receive the call, or did not accept it."""
    if getattr(error, "untaken", False) is True or isinstance(error, (Refused, NoResponders)):
        return True
    return isinstance(error, NodeStopped) and error.retryable


def _is_loss(error: BaseException) -> bool:
    """Return True if a link was lost, and False if a handler raised LinkLost."""
    return isinstance(error, LinkLost) and getattr(error, "of_link", False) is True
