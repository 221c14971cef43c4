"""The way to an instance of a service in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidewire import _limits
from tidewire.services.channel import Ended
from tidewire.services.port import Request

if TYPE_CHECKING:
    from tidewire._binding import Link, Pending, RemoteStream
    from tidewire.links.connection import Connection
    from tidewire.services.info import ServiceInfo

TRACE = "tw-trace"
"""The header with the id that a call shares with the one it was made in."""


class RemotePort:
    """A port to an instance that another node serves.

    Attributes:
        instance: The id of the instance.
        info: What it serves.
        node: The name of its node.
    """

    over_link = True

    def __init__(self, connection: Connection, info: ServiceInfo, node: str) -> None:
        (self.instance,) = info.instances
        self.info = info
        self.node = node
        self._connection = connection
        self._engine = connection.node._engine
        self._prefix = f"svc.{info.name}.{self.instance}."
        self._subjects: dict[str, str] = {}

    def call(self, request: Request) -> Pending:
        """Send a call; see ``Port``."""
        return self.send(
            request.method, request.args, request.kwargs, request.left_s(), request.priority, _headers(request)
        )

    def send(
        self,
        method: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        timeout_s: float | None,
        priority: str = "normal",
        headers: dict[str, str] | None = None,
    ) -> Pending:
        """Send a call that nothing else belongs to."""
        subject = self._subjects.get(method) or self._subject(method)
        value = [args, kwargs] if kwargs else args
        return self._connection.link.call(self._engine, subject, value, timeout_s, priority, headers)

    def _subject(self, method: str) -> str:
        subject = self._prefix + method
        if any(method == known.name for known in self.info.methods):
            self._subjects[method] = subject
        return subject

    def stream(self, request: Request) -> RemoteItems:
        """Open a stream; see ``Port``."""
        link: Link = self._connection.link
        stream = link.open(
            self._prefix + request.method,
            [request.args, request.kwargs] if request.kwargs else request.args,
            request.left_s(),
            _limits.STREAM_CREDIT.default,
            request.priority,
            _headers(request),
        )
        return RemoteItems(stream)


class RemoteItems:
    """A stream that was opened at another node."""

    def __init__(self, stream: RemoteStream) -> None:
        self._stream = stream

    async def take(self) -> Any:
        """Give the next item; see ``Items``."""
        return await self._stream.take()

    def take_blocking(self) -> Any:
        """Give the next item, and block this thread; see ``Items``."""
        try:
            return self._stream.take().wait()
        except StopAsyncIteration:
            raise Ended from None

    def close(self) -> None:
        """Read no more; see ``Items``."""
        self._stream.close()

    async def over(self) -> None:
        """The other side closes its generator when it hears of the end; nobody here can wait for that."""

    def over_blocking(self) -> None:
        """As ``over``."""


def _headers(request: Request) -> dict[str, str] | None:
    if request.parent is None and not request.headers:
        return None
    headers = dict(request.headers)
    if request.parent is not None:
        headers[TRACE] = request.trace
    return headers
