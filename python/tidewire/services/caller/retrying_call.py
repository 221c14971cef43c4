"""Remote call with failover: it chooses an instance, sends, records the outcome, and retries after
failures.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, cast

from tidewire._binding import Pending
from tidewire.errors import LinkLost, NoResponders, TidewireError
from tidewire.services.caller.attempts import is_final, note
from tidewire.services.caller.outbound_call import OutboundCall
from tidewire.services.instance_transport import Refused
from tidewire.services.instances import context

if TYPE_CHECKING:
    from tidewire.services.caller.attempts import Attempts
    from tidewire.services.instance_transport import LinkPort, Request
    from tidewire.services.registry import Group


class LinkCall(Pending[Any]):
    """A call of a method that gives one value, of a service in other processes. The compiled half
    makes it.
    """

    __slots__ = ()

    def __aiter__(self) -> AsyncIterator[Any]:
        # The method was not known yet, and is a stream.
        from tidewire.services.stream_reader import Stream

        return Stream(self._retrying_call()).__aiter__()


class RetryingCall(OutboundCall):
    """A remote call with failover: it chooses an instance, sends, and records the outcome.
    ``LinkCall`` calls its methods.
    """

    __slots__ = (
        "_attempts",
        "_begun",
        "_giving",
        "_group",
        "_pausing",
        "_port",
        "_request",
        "_seen",
        "_since",
        "_without",
    )

    _attempts: Attempts | None
    _begun: float
    _giving: Any
    _group: Group
    _pausing: bool
    _port: LinkPort
    _request: Request | None
    _seen: int
    _since: float
    # Instances of this process that came after the call was made: the reply of one is no pending.
    _without: Collection[str]

    def begin(self) -> Pending:
        """Send it."""
        self._pausing, self._attempts, self._giving, self._begun = False, None, None, monotonic()
        self._seen = self.registry.change_counter.count
        self._group = self.registry.group(self.service)
        self._request = self.request(False) if self.options.headers or context.running.get() is not None else None
        self._without = () if self._group.over_links else self._group.local()
        return self._sent()

    def was_sent(self, group: Group, port: LinkPort, ago_s: float) -> None:
        """Note that the call was sent to the only instance. Its outcome follows."""
        self._pausing, self._attempts, self._begun = False, None, monotonic() - ago_s
        self._giving = self._request = None
        self._seen = self.registry.change_counter.count
        self._without, self._group, self._port, self._since = (), group, port, perf_counter() - ago_s

    def ended(self, value: Any) -> Any:
        """Note that it was answered, and return the value; or make it again after a pause, and
        return that.
        """
        if self._pausing:
            self._pausing = False
            return self._again()
        self._group.ended(self._port.instance, perf_counter() - self._since)
        if self._giving is not None:
            self._giving.ended()
        return value if self.result is None else self.result(value)

    def failed(self, error: BaseException) -> Pending | None:
        """Note that it failed, and send it to another instance if that may help, or again if its
        link was lost.
        """
        if self._giving is not None:
            self._giving.ended(lost=isinstance(error, (LinkLost, NoResponders, Refused)))
            self._giving = None
        return self._again() if self._goes_on(error) else None

    def _goes_on(self, error: BaseException) -> bool:
        """Note that it failed, and return whether another instance is to be tried."""
        if is_final(error):
            note(self._group, self._port, self._since, error)
            return False
        if self._attempts is None:
            self._attempts = self.attempts(self._request_with_deadline().deadline)
        return self._attempts.goes_on(self._group, self._port, self._since, error, self.is_idempotent(self._group))

    def _request_with_deadline(self) -> Request:
        """Return the request with the deadline that it began with."""
        request = self._request
        if request is None:
            self._request = request = self.request(False)
            end = self._begun + self.timeout_s
            request.deadline = end if request.parent is None or request.deadline is None else min(end, request.deadline)
        return request

    def _again(self) -> Pending:
        """Make it again, or wait until that is possible."""
        self._seen = self.registry.change_counter.count
        try:
            self._group = group = self.registry.group(self.service)
            self._without = () if group.over_links else group.local()
            return self._sent()
        except TidewireError as error:
            assert self._attempts is not None
            wait_s = self._attempts.wait_s(error)
            self._pausing = True
            return self.registry.pause(wait_s, self._seen)

    def dropped(self) -> None:
        """Note that nobody waits for it any more."""
        if self._pausing:
            return
        self._group.ended(self._port.instance, None)
        if self._giving is not None:
            self._giving.ended()

    def _give(self, value: Any) -> Any:
        """Return what stands for a function or an object among the arguments."""
        if self._giving is None:
            self._giving = self._port.giving()
        return self._giving(value)

    def _sent(self) -> Pending:
        while True:
            options, without = self.options, self._without
            chosen = (
                self._group.choose(options, without)
                if self._attempts is None
                else self._attempts.choose(self._group, options, without)
            )
            self._port = port = cast("LinkPort", chosen)
            self._since = perf_counter()
            try:
                request = self._request
                if request is None:
                    return port.send(
                        self.method, self.args, self.kwargs, self.timeout_s, self.options.priority, self._give
                    )
                return port.send_request(request, self._give)
            except BaseException as error:
                if self._giving is not None:
                    self._giving.ended(lost=True)
                    self._giving = None
                if not self._goes_on(error):
                    raise


__all__ = ["LinkCall", "RetryingCall"]
