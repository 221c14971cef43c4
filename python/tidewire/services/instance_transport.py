"""Transport between clients and instances: a request, and the route to one instance of a service.

``local.py`` is the route within a process. A link adds routes of its own to the registry, and
clients call through all of them in the same manner.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Generator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from tidewire._trace_context import running, trace_of
from tidewire.errors import ActorStopped, AskTimeout

if TYPE_CHECKING:
    from tidewire._binding import Route
    from tidewire._runtime.steps import Steps
    from tidewire.services.caller.argument_streams import ArgumentStream
    from tidewire.services.contract.info import ServiceInfo
    from tidewire.services.instances.inbound_call import AnyRunning

_NO_HEADERS: Mapping[str, str] = {}


class Request:
    """A call as it travels.

    Attributes:
        service: The service.
        method: The method.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        deadline: When it ends at the latest, on the clock of ``time.monotonic()``; None for a
            stream without an end.
        headers: Headers that the caller adds to it.
        priority: "urgent", "high", "normal" or "low".
        node: The name of the node that calls.
        user: On whose behalf; nested calls inherit it.
        origin: From where it comes: "node", "private" (a node that joined) or "public" (over HTTP).
        subject: The subject, if it is an event.
        parent: The call in whose handler it was made, if it was made in one.
        feeds: The generators among its arguments. They are closed when it is over.
    """

    __slots__ = (
        "_trace",
        "args",
        "deadline",
        "feeds",
        "headers",
        "kwargs",
        "method",
        "node",
        "origin",
        "parent",
        "priority",
        "service",
        "subject",
        "user",
    )

    def __init__(
        self,
        service: str,
        method: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        deadline: float | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        priority: str = "normal",
        node: str = "",
        user: str | None = None,
        origin: str = "node",
        subject: str | None = None,
        parent: AnyRunning | None = None,
        trace: str | None = None,
    ) -> None:
        self.service = service
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.deadline = deadline
        self.headers = headers
        self.priority = priority
        self.node = node
        self.user = user
        self.origin = origin
        self.subject = subject
        self.parent = parent
        self.feeds: list[ArgumentStream] = []
        self._trace = trace

    @property
    def trace(self) -> str:
        """The id that the call shares with the one it was made in. It is made when it is first
        asked for.
        """
        if self._trace is None:
            parent = self.parent
            made = trace_of(self.headers) or (parent and parent.request.trace)
            self._trace = made or f"{random.getrandbits(128):032x}"
        return self._trace

    @property
    def title(self) -> str:
        """Name of the call in error messages."""
        return f"{self.service}.{self.method}"

    @property
    def blocked_ms(self) -> int | None:
        """Block time of the caller's loop for an AskTimeout: 0 over a link, because a loop that
        sees the timeout here is not blocked. None within a process.
        """
        return None if self.origin == "node" else 0

    def left_s(self) -> float | None:
        """Return how many seconds are left, or None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - monotonic())


class Refused(ActorStopped):
    """The instance has not taken the call, so that another may."""


class Reply(Protocol):
    """A call that was sent: awaited once, or waited for once."""

    def __await__(self) -> Generator[Any, Any, Any]:
        """Give the result, or raise the handler's error; whatever interrupts the wait cancels the
        handler.
        """
        ...

    def wait(self) -> Any:
        """Do the same, and block this thread."""
        ...

    def cancel(self) -> object:
        """Say that nobody will wait: the handler is cancelled."""
        ...


class Items(Protocol):
    """A stream that was opened."""

    def take(self) -> Awaitable[Any]:
        """Give the next item, or raise StopAsyncIteration at the end, or the error that ended
        it.
        """
        ...

    def take_blocking(self) -> Any:
        """Give the next item, and block this thread; raise ``channel.Ended`` at the end."""
        ...

    def close(self) -> object:
        """Say that nobody takes items any more: the generator is closed. It never waits."""
        ...

    def over(self) -> Steps[None]:
        """Take no more items, and wait until the generator has been closed."""
        ...


class InstanceTransport(Protocol):
    """The route to one instance of a service."""

    @property
    def instance(self) -> str:
        """The id of the instance."""
        ...

    @property
    def info(self) -> ServiceInfo:
        """Description of the service that the instance serves."""
        ...

    @property
    def over_link(self) -> bool:
        """True if the instance is in another process."""
        ...

    def route(self) -> Route | None:
        """Return the route for the fast path of calls; None if there is none."""
        ...

    def call(self, request: Request) -> Reply:
        """Send a call.

        Raises:
            Refused: if the instance takes no more calls; nothing was sent. Awaiting the reply may
                raise it too.
        """
        ...

    def stream(self, request: Request) -> Items:
        """Open a stream.

        Raises:
            Refused: if the instance takes no more calls; nothing was sent.
        """
        ...


def nested_deadline(title: str, timeout_s: float | None, parent: AnyRunning | None) -> float | None:
    """Return when a call ends at the latest: within its own time, and within what is left of the
    call it is made in.

    Raises:
        AskTimeout: if nothing is left, or nobody waits for the outer call any more.
    """
    own = None if timeout_s is None else monotonic() + timeout_s
    if parent is None:
        return own
    if parent.cancelled:
        raise AskTimeout(f"{title}: not called: the call of {parent.request.title} around it was cancelled")
    outer = parent.request.deadline
    if outer is None or (own is not None and own < outer):
        return own
    if outer <= monotonic():
        raise AskTimeout(f"{title}: not called: the deadline of {parent.request.title} around it has passed")
    return outer


def current() -> AnyRunning | None:
    """Return the call in whose handler this code runs."""
    return running.get()
