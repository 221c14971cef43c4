"""Retry loop of a call from plain Python: the next instance, and the time of the attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewire.errors import TidewireError
from tidewire.services.caller.outbound_call import OutboundCall

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire.services.caller.attempts import Attempts
    from tidewire.services.instance_transport import InstanceTransport
    from tidewire.services.registry import Group


class RetryLoop:
    """Which instance gets a call next, and when.

    Attributes:
        request: The call as it travels.
        group: The instances that it may go to.
    """

    def __init__(self, sending: OutboundCall, group: Group) -> None:
        self.group, self.request = group, sending.request(False, group.over_links)
        self._sending = sending
        self._attempts: Attempts | None = None
        self._wait_s, self._seen = 0.0, 0

    def next(self) -> InstanceTransport | None:
        """Return the route to an instance, or None: wait for ``pause`` first."""
        self._seen = self._sending.registry.change_counter.count
        attempts, options = self._attempts, self._sending.options
        if attempts is None:
            return self.group.choose(options)
        try:
            self.group = self._sending.group()
            return attempts.choose(self.group, options)
        except TidewireError as error:
            self._wait_s = attempts.wait_s(error)
            return None

    def pause(self) -> Pending:
        """Return what to wait for where ``next`` gave none."""
        return self._sending.registry.pause(self._wait_s, self._seen)

    def failed(self, port: InstanceTransport, since: float, error: BaseException) -> None:
        """Note that a call failed. Returns if it is to be made once more, else raises the error."""
        if self._attempts is None:
            self._attempts = self._sending.attempts(self.request.deadline)
        idempotent = self._sending.is_idempotent(self.group)
        if not self._attempts.goes_on(self.group, port, since, error, idempotent):
            raise error
