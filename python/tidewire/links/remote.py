"""Route to an instance of a service in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidewire._binding import Route, service_subject
from tidewire._runtime.steps import Procedure
from tidewire.errors import LinkLost, NoResponders
from tidewire.objects.export_scope import ExportScope
from tidewire.services.channel import Ended
from tidewire.services.contract.info import InstanceInfo
from tidewire.services.instance_transport import Reply, Request

if TYPE_CHECKING:
    from tidewire._binding import Link, Pending, RemoteStream
    from tidewire._runtime.steps import Steps
    from tidewire.links.connection import Connection
    from tidewire.services.contract.info import ServiceInfo

TRACE = "tw-trace"
"""The header with the id that a call shares with the one it was made in."""


class RemotePort:
    """A port to an instance that another node serves.

    Attributes:
        instance: The id of the instance.
        info: Description of the service that it serves.
        node: The name of its node.
    """

    over_link = True

    def __init__(self, connection: Connection, info: ServiceInfo, node: str) -> None:
        (self.instance,) = info.instances
        (detail,) = info.details or (InstanceInfo(self.instance),)
        self.info = replace(info, details=(replace(detail, node=node),))
        self.node = node
        self._connection = connection
        self._engine = connection.node._engine
        self._prefix = service_subject(info.name, "", self.instance)
        self._subjects: dict[str, str] = {}

    def route(self) -> Route | None:
        """Return the route; see ``LinkPort``."""
        if not self._connection.is_joined:
            return None
        return Route(self._connection.link, self._engine, self.instance, self._prefix, self)

    def giving(self) -> ExportScope:
        """Return the encoder for functions and objects among the arguments of one call."""
        return ExportScope(self._connection.objects, self.node)

    def call(self, request: Request) -> Reply:
        """Send a call; see ``InstanceTransport``."""
        giving = self.giving()
        try:
            pending = self.send_request(request, giving)
        except BaseException:
            giving.ended(lost=True)
            raise
        return GivenReply(pending, giving) if giving.entries else pending

    def send_request(self, request: Request, give: Any) -> Pending:
        """Send a call that exports some of its arguments; the exporter handles their ends."""
        return self.send(
            request.method, request.args, request.kwargs, request.left_s(), request.priority, give, _headers(request)
        )

    def send(
        self,
        method: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        timeout_s: float | None,
        priority: str = "normal",
        give: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Pending:
        """Send a call that nothing else belongs to."""
        subject = self._subjects.get(method) or self.subject(method)
        value = [args, kwargs] if kwargs else args
        return self._connection.link.call(self._engine, subject, value, timeout_s, priority, headers, give)

    def subject(self, method: str) -> str:
        """Return the subject of a method."""
        subject = self._prefix + method
        if any(method == known.name for known in self.info.methods):
            self._subjects[method] = subject
        return subject

    def stream(self, request: Request) -> RemoteItems:
        """Open a stream; see ``InstanceTransport``."""
        link: Link = self._connection.link
        giving = self.giving()
        try:
            stream = link.open(
                self._prefix + request.method,
                [request.args, request.kwargs] if request.kwargs else request.args,
                request.left_s(),
                self._connection.node.links.stream_credit,
                request.priority,
                _headers(request),
                giving,
            )
        except BaseException:
            giving.ended(lost=True)
            raise
        return RemoteItems(stream, giving)


class RemoteItems:
    """A stream that was opened at another node."""

    def __init__(self, stream: RemoteStream, giving: ExportScope) -> None:
        self._stream = stream
        self._giving = giving

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
        self._giving.ended()

    def over(self) -> Steps[None]:
        """Read no more, and wait until the other side has closed its generator; see ``Items``."""
        yield self._stream.over()
        self._giving.ended()


class GivenReply(Procedure[Any]):
    """A call with arguments that were given; see ``Reply``."""

    def __init__(self, pending: Pending, giving: ExportScope) -> None:
        self._pending = pending
        self._giving = giving

    def _steps(self) -> Steps[Any]:
        try:
            return (yield self._pending)
        except BaseException as error:
            self._giving.ended(isinstance(error, (LinkLost, NoResponders)))
            raise
        finally:
            self._giving.ended()

    def cancel(self) -> None:
        """Note that nobody will wait; see ``Reply``."""
        self._pending.cancel()
        self._giving.ended()


def _headers(request: Request) -> dict[str, str] | None:
    if request.parent is None and not request.headers:
        return None
    headers = dict(request.headers)
    if request.parent is not None:
        headers[TRACE] = request.trace
    return headers
