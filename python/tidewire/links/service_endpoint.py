"""Server side of one service instance: admits and runs the calls of other nodes."""

from __future__ import annotations

import asyncio
import functools
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from tidewire._binding import InboundCallRun, RemoteCall, RemoteMessage
from tidewire._handlers import Plan
from tidewire._limits import CONCURRENCY
from tidewire._log import log
from tidewire._node.actors import Options
from tidewire.errors import InvalidArgument, MailboxFull
from tidewire.links.call_channel import CallChannel
from tidewire.links.remote import TRACE
from tidewire.services.caller.local import open_stream
from tidewire.services.caller.reply import late
from tidewire.services.contract.methods import Bound
from tidewire.services.instance_transport import Request
from tidewire.services.instances.inbound_call import Failure, InboundCall
from tidewire.services.instances.stream_writer import TaskWriter
from tidewire.supervision import Mailbox
from tidewire.values.records import FieldMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidewire._binding import ActorRef
    from tidewire.services.instances.instance import ServiceInstance

_R = TypeVar("_R", bound=Request)
_NO_RESPONDERS, _INVALID_ARGUMENT, OVERLOADED = 17, 9, 50
_IS_STREAM = "it is a stream, and the call gives no credit for items: read it with `async for`, rather than await it"
_IS_VALUE = "it gives one value: await it, rather than read it with `async for`"


class ServiceEndpoint:
    """Server side of one instance for calls of other nodes, which share the queue of local calls.

    Args:
        instance: The instance.
    """

    def __init__(self, instance: ServiceInstance) -> None:
        self._instance = instance
        self._warned = False
        self.endpoint = instance.endpoint
        # Without coroutines the thread workers have the concurrency limit and the queue.
        self.actor = self._spawn(None, instance.capacity.calls) if instance.values is None else instance.values
        self.own_actor = self.actor if instance.values is None else None
        # A long stream must not occupy the slot of a call. Its actor stops with the other.
        self._streams = self._spawn(self.actor, instance.capacity.streams) if instance.streams_any else self.actor
        public = instance.admitted("public")
        methods = {name: (method, name in public) for name, method in instance.admitted("private").items()}
        has_coroutines = instance.values is not None
        self.endpoint.open(
            self, instance.info.name, methods, self.actor, self._streams, instance.workers, has_coroutines
        )

    def _spawn(self, parent: ActorRef | None, places: int) -> ActorRef:
        """Return an actor for running and queued calls. It accepts one more than both limits, which
        the instance refuses.
        """

        def plan() -> Plan:
            return Plan(self.endpoint, takes_context=False, coroutine=True)

        limit = places + self._instance.capacity.waiting
        options = Options(mailbox=Mailbox(limit, "fail"), concurrency=min(limit + 1, CONCURRENCY.max))
        return self._instance.node._spawn_plan(plan, options, parent)

    def __call__(self, call: RemoteCall | RemoteMessage) -> None:
        """Admit a call, or refuse it if the queue is full. Messages published to the subject of a
        service have no handler.
        """
        if not isinstance(call, RemoteMessage):
            self.endpoint(call)
        elif not self._warned:
            self._warned = True
            log.warning(
                "service.published_to",
                "%(subject)s: the node %(peer)r publishes to a service, which takes calls alone, so that nobody gets it: use "
                "a client, or publish on a subject of its own; further ones are not logged",
                subject=call.subject,
                peer=call.node,
            )

    # The compiled endpoint begins calls of the fast path, and passes all others to this method.
    async def _receive(self, call: RemoteCall) -> None:
        if call.cancelled:
            return
        try:
            request = self._request(call)
            method = self._instance.method(request)
            if method.streams != call.reads_items:
                call.refuse(_INVALID_ARGUMENT, _IS_STREAM if method.streams else _IS_VALUE)
                return
            if method.streams:
                await self._stream(call, request, method)
                return
            running = InboundCall(request, method, self._instance.id)
            call.on_cancel(running.cancel)
            self.answer(call, request.node, await self._instance.receive(running))
        except asyncio.CancelledError:
            if not call.cancelled:
                raise
        # The caller receives every error.
        except BaseException as error:  # noqa: BLE001
            fail(call, error)

    def _run(self, call: RemoteCall) -> None:
        """Run a plain function whose arguments need a check or a conversion, on a thread worker."""
        try:
            request = self._request(call)
            running = InboundCall(request, self._instance.method(request), self._instance.id)
            call.on_cancel(running.cancel)
            self.answer(call, request.node, self._instance.run(running))
        # The caller receives every error.
        except BaseException as error:  # noqa: BLE001
            fail(call, error)

    def _late(self, handling: InboundCallRun) -> None:
        """Send the timeout of a plain function to its caller. The compiled endpoint calls this."""
        title = f"{self._instance.info.name}.{_method(handling.call.subject)}"
        fail(handling.call, late(title, handling.instance, handling.begun, 0))

    def give_back(self, messages: Iterable[Any]) -> None:
        """Refuse calls that have not begun, so that their callers retry at another instance."""
        for message in messages:
            call = message.call if isinstance(message, InboundCallRun) else message
            if isinstance(call, RemoteCall):
                call.refuse(
                    _NO_RESPONDERS,
                    f"{self._instance.info.name}: the instance has stopped: call another, or serve it again",
                )

    def _refuse_coroutine(self, handling: InboundCallRun, value: Any) -> None:
        self._instance.refuse_coroutine(handling, value)

    async def _stream(self, call: RemoteCall, request: Request, method: Bound) -> None:
        channel = CallChannel(call, request, self._give, fail)
        try:
            writer = open_stream(self._instance, request, method, channel, TaskWriter)
        except MailboxFull as full:
            call.refuse(OVERLOADED, str(full))
            return
        call.on_cancel(writer.close)
        if isinstance(writer, TaskWriter):
            await writer.run()
            return
        try:
            await channel.ended()
        finally:
            writer.close()

    def _give(self, node: str, value: Any) -> Any:
        """Return the reference of a function or an object in a result."""
        connection = self._instance.node._connection
        return None if connection is None else connection.objects.reference_to(node, value)[1]

    def raised(self, handling: InboundCallRun, error: BaseException) -> None:
        """Reply to a call whose handler raised. The compiled endpoint calls this.

        Raises:
            CancelledError: if the loop is ending.
        """
        self.answer(handling.call, handling.call.node, self._instance.raised(handling, error))

    def answer(self, call: RemoteCall, node: str, value: Any) -> None:
        """Reply to a call with the result of its handler."""
        if value.__class__ is Failure:
            fail(call, value.error)
            return
        try:
            call.reply(value, functools.partial(self._give, node))
        # The caller also receives the error of an unsendable result.
        except Exception as error:  # noqa: BLE001
            fail(call, error)

    def _bound(self, call: RemoteCall, method: str) -> Bound | None:
        """Return the method of a call, or None."""
        return self._instance.admitted("private").get(method)

    def _request(self, call: RemoteCall) -> Request:
        return self._read(call, Request, self._instance.info.name)

    def _read(self, call: RemoteCall, kind: type[_R], service: str) -> _R:
        try:
            subject, value, left_s, headers, priority, node, user, origin = call.opened()
        except FieldMismatch as mismatch:
            method = _method(call.subject)
            raise InvalidArgument(unfit_error(f"{service}.{method}", mismatch, self._bound(call, method))) from None
        args, kwargs = (value, {}) if value.__class__ is tuple else arguments_of(value, subject)
        trace = None if headers is None else headers.pop(TRACE, None)
        return kind(
            service,
            _method(subject),
            args,
            kwargs,
            deadline=None if left_s is None else monotonic() + left_s,
            headers=headers or {},
            priority=priority,
            node=node,
            user=user or None,
            origin=origin,
            trace=trace,
        )


def _method(subject: str) -> str:
    return subject.rsplit(".", 1)[1]


def arguments_of(value: Any, subject: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call: a tuple, or a list of a tuple and a dict; a dict alone is by
    name.
    """
    if isinstance(value, tuple):
        return value, {}
    if isinstance(value, dict):
        return (), value
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], dict):
        return tuple(value[0]), value[1]
    if isinstance(value, list):
        return tuple(value), {}
    if value is None:
        return (), {}
    raise InvalidArgument(
        f"{subject}: the arguments are a {type(value).__name__}: send a list of them, or a map by name"
    )


def unfit_error(title: str, mismatch: FieldMismatch, method: Bound | None) -> str:
    """Return the error of an unfit argument, with its name and the path in it."""
    path = list(mismatch.path)
    kind: type
    at: Any
    kind, at = path.pop(0) if path else (dict, "")
    if kind is list and path and (at, path[0][0]) in ((0, tuple), (1, dict)):
        kind, at = path.pop(0)
    if method is not None and kind is not dict:
        positional = method.signature.positional
        parameter = positional[at] if at < len(positional) else method.signature.rest
        at = at if parameter is None else parameter.name
    inner = "".join(
        f".{place}" if container is dict and isinstance(place, str) else f"[{place!r}]" for container, place in path
    )
    return f"{title}: {at}{inner}: {mismatch.problem}"


def fail(call: RemoteCall, error: BaseException) -> None:
    """Reply to a call with an error."""
    try:
        call.fail(error)
    except Exception:  # noqa: BLE001
        call.refuse(15, f"{type(error).__name__}: the error itself could not be sent")
