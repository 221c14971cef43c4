"""Transport to a service instance of another process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidewire._binding import Route, service_subject
from tidewire._runtime.steps import Procedure
from tidewire.errors import LinkLost, NoResponders
from tidewire.objects.export_scope import ExportScope
from tidewire.services.channel import Ended
from tidewire.services.contract.info import InstanceInfo
from tidewire.services.contract.names import FAR
from tidewire.services.instance_transport import Reply, Request

if TYPE_CHECKING:
    from tidewire._binding import Pending, RemoteStream
    from tidewire._runtime.steps import Steps
    from tidewire.links.connection import Connection
    from tidewire.services.contract.info import ServiceInfo

TRACE = "tw-trace"
"""Header with the trace id, which a call shares with its parent."""


class RemotePort:
    """Transport to a service instance of another node.

    Attributes:
        instance: The id of the instance.
        info: Description of its service.
        node: The name of its node.
    """

    over_link = True

    def __init__(self, connection: Connection, info: ServiceInfo, node: str) -> None:
        (self.instance,) = info.instances
        (detail,) = info.details or (InstanceInfo(self.instance),)
        self.info = replace(info, details=(replace(detail, node=node),))
        self.node = node
        self._peer = None if self.instance.startswith(FAR) else node
        self._connection = connection
        self._engine = connection.node._engine
        self._prefix = service_subject(info.name, "", self.instance)

    def route(self) -> Route | None:
        """Return the route; see ``InstanceTransport``."""
        if not self._connection.is_joined:
            return None
        return Route(self._connection.link, self._engine, self.instance, self._prefix, self)

    def call(self, request: Request) -> Reply:
        """Send a call; see ``InstanceTransport``."""
        exports = ExportScope(self._connection.objects, self._peer)
        arguments, headers = _arguments(request), _headers(request)
        try:
            pending = self._connection.link.call(
                self._engine,
                self._prefix + request.method,
                arguments,
                request.left_s(),
                request.priority,
                headers,
                exports,
            )
        except BaseException:
            exports.ended(lost=True)
            raise
        return GivenReply(pending, exports) if exports.entries else pending

    def stream(self, request: Request) -> RemoteItems:
        """Open a stream; see ``InstanceTransport``."""
        exports = ExportScope(self._connection.objects, self._peer)
        arguments, headers = _arguments(request), _headers(request)
        try:
            stream = self._connection.link.open(
                self._prefix + request.method,
                arguments,
                request.left_s(),
                self._connection.node.links.stream_credit,
                request.priority,
                headers,
                exports,
            )
        except BaseException:
            exports.ended(lost=True)
            raise
        return RemoteItems(stream, exports)


class RemoteItems:
    """A stream from another node."""

    def __init__(self, stream: RemoteStream, exports: ExportScope) -> None:
        self._stream = stream
        self._exports = exports

    def take(self) -> Pending:
        """Return the next item; see ``Items``."""
        return self._stream.take()

    def take_blocking(self) -> Any:
        """Return the next item, and block this thread; see ``Items``."""
        try:
            return self._stream.take().wait()
        except StopAsyncIteration:
            raise Ended from None

    def close(self) -> None:
        """Stop reading; see ``Items``."""
        self._stream.close()
        self._exports.ended()

    def over(self) -> Steps[None]:
        """Stop reading, and wait until the other side has closed its generator; see ``Items``."""
        yield self._stream.over()
        self._exports.ended()


class GivenReply(Procedure[Any]):
    """The reply of a call with exported arguments; see ``Reply``."""

    def __init__(self, pending: Pending, exports: ExportScope) -> None:
        self._pending = pending
        self._exports = exports

    def _steps(self) -> Steps[Any]:
        try:
            return (yield self._pending)
        except BaseException as error:
            self._exports.ended(isinstance(error, (LinkLost, NoResponders)))
            raise
        finally:
            self._exports.ended()

    def cancel(self) -> None:
        """Cancel the call; see ``Reply``."""
        self._pending.cancel()
        self._exports.ended()


def _arguments(request: Request) -> Any:
    return [request.args, request.kwargs] if request.kwargs else request.args


def _headers(request: Request) -> dict[str, str] | None:
    if request.parent is None and not request.headers:
        return None
    headers = dict(request.headers)
    if request.parent is not None or "traceparent" in headers:
        headers[TRACE] = request.trace
    return headers
