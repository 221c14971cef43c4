"""Which instance gets a call next, and when: another one if the first refuses it, again after a pause if its link was lost."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from tidewire.errors import TidewireError
from tidewire.services.resending import Resending, is_loss
from tidewire.services.sending import Sending, noted, refusal

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire.errors import NodeStopped
    from tidewire.services.port import Port
    from tidewire.services.registry import Group


class Turn:
    """Which instance gets a call next, and when.

    Attributes:
        request: The call as it travels.
        group: The instances that it may go to.
    """

    def __init__(self, sending: Sending, group: Group) -> None:
        self.group, self.request = group, sending.request(False, group.over_links)
        self._sending, self._tried = sending, set[str]()
        self._refused: NodeStopped | None = None
        self._wait_s, self._seen = 0.0, 0
        self._resending: Resending | None = None
        self._pausing = False

    def next(self) -> Port | None:
        """Return the way to an instance, or None: wait for ``pause`` first."""
        if self._pausing:
            self._pausing = False
            return None
        self._seen = self._sending.registry.news.count
        if self._resending is None:
            return self.group.choose(self._sending.options, self._tried, self._refused)
        try:
            self.group = self._sending.group()
            return self.group.choose(self._sending.options, self._tried)
        except TidewireError as error:
            self._tried = set()
            self._wait(self._resending.while_nobody(error, monotonic()), self._resending.lost or error)
            self._pausing = False
            return None

    def pause(self) -> Pending:
        """Return what to wait for where ``next`` gave none."""
        return self._sending.registry.pause(self._wait_s, self._seen)

    def failed(self, port: Port, since: float, error: BaseException) -> None:
        """Note that a call failed. Returns if it is to be made once more, else raises the error."""
        if noted(self.group, port, since, error):
            self._tried.add(port.instance)
            self._refused = refusal(error)
            return
        if not is_loss(error) or not self._sending.is_idempotent(self.group):
            raise error
        if self._resending is None:
            self._resending = self._sending.resending(self.request)
        wait_s = self._resending.after_loss(error, monotonic())
        self._tried = set()
        self._wait(wait_s, self._resending.lost or error)

    def _wait(self, wait_s: float | None, error: BaseException) -> None:
        if wait_s is None:
            raise error
        self._wait_s, self._pausing = wait_s, True
