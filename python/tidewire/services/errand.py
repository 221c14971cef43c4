"""A call that goes over a link: a future of the engine, which begins when somebody waits for it."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn, cast

from tidewire._binding import Pending
from tidewire.errors import LinkLost, NoResponders
from tidewire.services import context
from tidewire.services.port import Refused
from tidewire.services.reading import Stream
from tidewire.services.sending import Sending, noted

if TYPE_CHECKING:
    from tidewire.services.port import LinkPort, Request
    from tidewire.services.registry import Group


class Errand(Sending):
    """What such a call does: it chooses an instance, sends, and notes how it went. ``Pending`` calls its methods.

    Attributes:
        used: Whether somebody has begun the call, or given it up.
    """

    __slots__ = ("_giving", "_group", "_port", "_request", "_since", "_tried", "used")

    _giving: Any
    _group: Group
    _port: LinkPort
    _request: Request | None
    _since: float
    _tried: Collection[str]

    def begin(self) -> Pending:
        """Send it."""
        self.used = True
        self._giving = None
        self._group = self.registry.group(self.service)
        self._request = self.request(False) if self.options.headers or context.running.get() is not None else None
        # Instances of this process came after the call was made; the reply of one is no pending.
        self._tried = () if self._group.over_links else self._group.local()
        return self._sent()

    def ended(self, value: Any) -> Any:
        """Note that it was answered, and return the value."""
        self._group.ended(self._port.instance, perf_counter() - self._since)
        if self._giving is not None:
            self._giving.ended()
        return value if self.result is None else self.result(value)

    def failed(self, error: BaseException) -> Pending | None:
        """Note that it failed, and send it to another instance if that may help."""
        if self._giving is not None:
            self._giving.ended(lost=isinstance(error, (LinkLost, NoResponders, Refused)))
            self._giving = None
        if not noted(self._group, self._port, self._since, error):
            return None
        self._tried = {*self._tried, self._port.instance}
        return self._sent()

    def dropped(self, begun: bool) -> None:
        """Note that nobody waits for it any more, or that nobody ever did."""
        if begun:
            self._group.ended(self._port.instance, None)
            if self._giving is not None:
                self._giving.ended()
        elif not getattr(self, "used", False):
            warnings.warn(f"{self.title} was called and never awaited", RuntimeWarning, stacklevel=2)

    def _give(self, value: Any) -> Any:
        """Return what stands for a function or an object among the arguments."""
        if self._giving is None:
            self._giving = self._port.giving()
        return self._giving(value)

    def _sent(self) -> Pending:
        while True:
            self._port = port = cast("LinkPort", self._group.choose(self.options, self._tried))
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
                if not noted(self._group, port, self._since, error):
                    raise
                self._tried = {*self._tried, port.instance}


class LinkCall(Pending):
    """A call of a method that gives one value, of a service in other processes. See ``Call``."""

    # A task can be made of it, as of any coroutine.

    def send(self, value: Any) -> Any:
        """Go on, as a coroutine does."""
        return next(self)

    def throw(self, *error: Any) -> NoReturn:
        """Raise an error where it waits, as a coroutine does."""
        self.cancel()
        raise error[0] if len(error) == 1 or error[1] is None else error[1]

    def close(self) -> None:
        """Give it up, as a coroutine does."""
        self._plan.used = True
        self.cancel()

    def __aiter__(self) -> Stream:
        self._plan.used = True
        return Stream(self._plan)

    @property
    def __name__(self) -> str:
        """What a task that is made of it shows."""
        return str(self._plan.title)

    def __repr__(self) -> str:
        return f"<Call {self._plan.title}>"
