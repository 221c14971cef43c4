"""The endpoint of exported objects: inbound calls of functions and objects of this node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidewire._runtime import steps
from tidewire.errors import MailboxFull, NoSuchTarget, TidewireError
from tidewire.links.call_channel import CallChannel
from tidewire.links.service_endpoint import OVERLOADED, ServiceEndpoint, fail
from tidewire.services.contract.info import ServiceInfo
from tidewire.services.contract.methods import Bound
from tidewire.services.contract.names import nearest
from tidewire.services.instance_transport import Request
from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.services.instances.instance import ServiceInstance

if TYPE_CHECKING:
    from tidewire._binding import RemoteCall
    from tidewire.node import Node
    from tidewire.objects.references import Export, Objects

_INFO = ServiceInfo("objects", instances=("objects",))


class ObjectRequest(Request):
    """A call of an object. Its service is the title of the object."""

    __slots__ = ("entry",)

    entry: Export


class ObjectInstance(ServiceInstance):
    """Runs the calls of all exports of a node."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, _INFO, {}, ConcurrencyLimits.of(node.serving), "default")

    def _kinds(self, methods: Mapping[str, Bound]) -> set[tuple[bool, bool]]:
        return {(coroutine, streams) for coroutine in (False, True) for streams in (False, True)}

    def method(self, request: Request) -> Bound:
        assert isinstance(request, ObjectRequest)
        found = request.entry.methods.get(request.method)
        if found is None:
            raise NoSuchTarget(
                f"{request.service} has no method {request.method!r}: {nearest(request.method, request.entry.methods)}"
            )
        if not found.signature.binds(request.args, request.kwargs):
            found.signature.check(request.title, request.args, request.kwargs)
        return found


class ExportEndpoint(ServiceEndpoint):
    """Admits calls of exports that their caller holds."""

    def __init__(self, node: Node, objects: Objects) -> None:
        super().__init__(ObjectInstance(node))
        self._objects = objects
        self._entries: dict[RemoteCall, Export] = {}

    # Nobody may publish on the subjects of a node.
    def __call__(self, call: RemoteCall) -> None:  # type: ignore[override]
        """Handle a claim, a release, or a call of an object."""
        operation = call.subject.split(".", 2)[2]
        try:
            if operation == "claim":
                self._objects.claim(call)
            elif operation == "release":
                self._objects.release(call)
            else:
                self._admit(call, operation)
                return
            call.reply(None)
        except MailboxFull as full:
            call.refuse(OVERLOADED, str(full))
        # The sender receives every error.
        except Exception as error:  # noqa: BLE001
            fail(call, error)

    def _admit(self, call: RemoteCall, operation: str) -> None:
        key, _, name = operation.partition(".")
        entry = self._objects.called(call, key)
        bound = entry.methods.get(name)
        self._entries[call] = entry
        try:
            (self._streams if bound is not None and bound.streams else self.actor).tell(call, call.priority)
        except TidewireError:
            self._ended(call)
            raise

    async def _receive(self, call: RemoteCall) -> None:
        try:
            await super()._receive(call)
        finally:
            self._ended(call)

    def _ended(self, call: RemoteCall) -> None:
        entry = self._entries.pop(call, None)
        if entry is not None:
            self._objects.ends(entry)

    def _bound(self, call: RemoteCall, method: str) -> Bound | None:
        return self._entries[call].methods.get(method)

    def _request(self, call: RemoteCall) -> ObjectRequest:
        entry = self._entries[call]
        request = self._read(call, ObjectRequest, entry.title)
        request.entry = entry
        return request

    async def _stream(self, call: RemoteCall, request: Any, method: Bound) -> None:
        if request.entry.kind != "items":
            await super()._stream(call, request, method)
            return
        # The items of an argument, which its own task writes.
        items, channel = request.entry.target.items, CallChannel(call, request, self._give, fail)
        call.on_cancel(items.close)
        try:
            while not call.unread:
                try:
                    item = await items.take()
                except StopAsyncIteration:
                    break
                if not channel.put(item):
                    await channel.wait_for_capacity()
        finally:
            await steps.awaited(items.over())
        channel.end(None)
