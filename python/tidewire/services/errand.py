"""A call that goes over a link: a future of the engine, which begins when somebody waits for it."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NoReturn, cast

from tidewire._binding import Pending
from tidewire.errors import LinkLost, NoResponders, TidewireError
from tidewire.services import context
from tidewire.services.port import Refused
from tidewire.services.reading import Stream
from tidewire.services.resending import Resending, is_loss
from tidewire.services.sending import Sending, noted

if TYPE_CHECKING:
    from tidewire.services.port import LinkPort, Request
    from tidewire.services.registry import Group


class Errand(Sending):
    """What such a call does: it chooses an instance, sends, and notes how it went. ``Pending`` calls its methods.

    Attributes:
        used: Whether somebody has begun the call, or given it up.
    """

    __slots__ = (
        "_begun",
        "_giving",
        "_group",
        "_pausing",
        "_port",
        "_request",
        "_resending",
        "_seen",
        "_since",
        "_tried",
        "used",
    )

    _begun: float
    _pausing: bool
    _resending: Resending | None

    _giving: Any
    _group: Group
    _port: LinkPort
    _request: Request | None
    _seen: int
    _since: float
    _tried: Collection[str]

    def begin(self) -> Pending:
        """Send it."""
        self.used, self._pausing, self._resending, self._begun = True, False, None, monotonic()
        self._giving = None
        self._seen = self.registry.news.count
        self._group = self.registry.group(self.service)
        self._request = self.request(False) if self.options.headers or context.running.get() is not None else None
        # Instances of this process came after the call was made; the reply of one is no pending.
        self._tried = () if self._group.over_links else self._group.local()
        return self._sent()

    def ended(self, value: Any) -> Any:
        """Note that it was answered, and return the value; or make it again after a pause, and return that."""
        if self._pausing:
            self._pausing = False
            return self._again()
        self._group.ended(self._port.instance, perf_counter() - self._since)
        if self._giving is not None:
            self._giving.ended()
        return value if self.result is None else self.result(value)

    def failed(self, error: BaseException) -> Pending | None:
        """Note that it failed, and send it to another instance if that may help, or again if its link was lost."""
        if self._giving is not None:
            self._giving.ended(lost=isinstance(error, (LinkLost, NoResponders, Refused)))
            self._giving = None
        if noted(self._group, self._port, self._since, error):
            if self._resending is not None:
                # All that could take it are tried anew after a pause.
                return self._paused(self._resending.while_nobody(error, monotonic()))
            self._tried = {*self._tried, self._port.instance}
            self._kept()
            return self._sent()
        if is_loss(error) and self.is_idempotent(self._group):
            if self._resending is None:
                self._resending = self.resending(self._kept())
            return self._paused(self._resending.after_loss(error, monotonic()))
        return None

    def _kept(self) -> Request:
        """Return it as it travels, with the deadline that it began with."""
        request = self._request
        if request is None:
            self._request = request = self.request(False)
            request.deadline = self._begun + self.timeout_s
        return request

    def _again(self) -> Pending:
        """Make it again, or wait until that is possible."""
        self._seen = self.registry.news.count
        try:
            self._group = group = self.registry.group(self.service)
            self._tried = () if group.over_links else group.local()
            return self._sent()
        except TidewireError as error:
            assert self._resending is not None
            pending = self._paused(self._resending.while_nobody(error, monotonic()))
            if pending is None:
                raise self._resending.lost or error from error
            return pending

    def _paused(self, wait_s: float | None) -> Pending | None:
        if wait_s is None:
            return None
        self._pausing = True
        return self.registry.pause(wait_s, self._seen)

    def dropped(self, begun: bool) -> None:
        """Note that nobody waits for it any more, or that nobody ever did."""
        if begun and self._pausing:
            return
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
        try:
            raise error[0] if len(error) == 1 or error[1] is None else error[1]
        finally:
            # The traceback keeps this frame: what is in it would live until the garbage collector comes.
            del self, error

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
