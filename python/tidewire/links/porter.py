"""Runs the calls that other nodes make to an instance that is served here."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._handlers import Plan
from tidewire.errors import InvalidArgument, TidewireError
from tidewire.links.remote import TRACE
from tidewire.services.limits import SERVICE_STREAMS
from tidewire.services.local import LocalPort
from tidewire.services.port import Request
from tidewire.services.running import Failure, Running
from tidewire.supervision import Mailbox

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, RemoteCall
    from tidewire.services.host import Host

_LIMIT_EXCEEDED = 14
_MAILBOX = Mailbox(65_536, "fail")


class Porter:
    """Stands at the door of one instance: an actor on the node's loop, through which calls come to the host.

    Args:
        host: The instance.
        concurrency: How many calls it lets in at once.
    """

    def __init__(self, host: Host, concurrency: int) -> None:
        self._host = host
        self._port = LocalPort(host)
        self._streaming = {method.name for method in host.info.methods if method.stream}
        self.actor = self._spawn(None, max(concurrency, 2))
        # A stream may last for ever, and must not take the place of a call. Its actor ends with the other.
        self._streams = self._spawn(self.actor, SERVICE_STREAMS.max) if self._streaming else self.actor

    def _spawn(self, parent: ActorRef | None, concurrency: int) -> ActorRef:
        def plan() -> Plan:
            return Plan(self._receive, takes_context=False, coroutine=True)

        return self._host.node._spawn_plan(parent, plan, None, _MAILBOX, "default", concurrency, None)

    def __call__(self, call: RemoteCall) -> None:
        """Let a call in, or tell its caller that too many wait."""
        actor = self._streams if _method(call.subject) in self._streaming else self.actor
        try:
            actor.tell(call, call.priority)
        except TidewireError as error:
            call.refuse(_LIMIT_EXCEEDED, f"{call.subject}: {error}")

    async def _receive(self, call: RemoteCall) -> None:
        if call.cancelled:
            return
        try:
            request = self._request(call)
            method = self._host.method(request)
            if method.streams:
                await self._stream(call, request)
            elif method.coroutine:
                running = Running(request, method, self._host.instance)
                call.on_cancel(running.cancel)
                _answer(call, await self._host.receive(running))
            else:
                reply = self._port.call(request)
                call.on_cancel(reply.cancel)
                _answer(call, await reply)
        except asyncio.CancelledError:
            if not call.cancelled:
                raise
        # Whatever it is, it is for the caller.
        except BaseException as error:  # noqa: BLE001
            _fail(call, error)

    async def _stream(self, call: RemoteCall, request: Request) -> None:
        items = self._port.stream(request)
        call.on_cancel(items.close)
        try:
            await call.credit()
            while not call.cancelled:
                try:
                    item = await items.take()
                except StopAsyncIteration:
                    break
                pause = call.item(item)
                if pause is not None:
                    await pause
            call.over()
        finally:
            items.close()
            await items.over()

    def _request(self, call: RemoteCall) -> Request:
        subject, value, left, headers, priority, node, user = call.opened()
        args, kwargs = (value, {}) if value.__class__ is tuple else _arguments(value, subject)
        trace = None if headers is None else headers.pop(TRACE, None)
        return Request(
            self._host.info.name,
            _method(subject),
            args,
            kwargs,
            deadline=None if left is None else monotonic() + left,
            headers=headers or {},
            priority=priority,
            node=node,
            user=user or None,
            origin="private",
            trace=trace,
        )


def _method(subject: str) -> str:
    return subject.rsplit(".", 1)[1]


def _arguments(value: Any, subject: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that a call came with: a tuple, or a list of a tuple and a dict; a dict alone is by name."""
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


def _answer(call: RemoteCall, value: Any) -> None:
    if value.__class__ is Failure:
        _fail(call, value.error)
        return
    try:
        call.reply(value)
    # A result that can't be sent is the caller's business too.
    except Exception as error:  # noqa: BLE001
        _fail(call, error)


def _fail(call: RemoteCall, error: BaseException) -> None:
    try:
        call.fail(error)
    except Exception:  # noqa: BLE001
        call.refuse(15, f"{type(error).__name__}: the error itself could not be sent")
