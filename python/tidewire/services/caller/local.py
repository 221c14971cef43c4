"""Route to a service instance of this process. Arguments and results are not copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewire.errors import ActorStopped, InvalidArgument, TidewireError
from tidewire.services.caller.reply import LocalReply, call_error
from tidewire.services.channel import Channel
from tidewire.services.instance_transport import Request
from tidewire.services.instances.inbound_call import InboundCall
from tidewire.services.instances.instance import ServiceInstance
from tidewire.services.instances.stream_writer import PlainWriter, StreamWriter

if TYPE_CHECKING:
    from tidewire.links.call_channel import CallChannel
    from tidewire.services.contract.info import ServiceInfo
    from tidewire.services.contract.methods import Bound


class LocalPort:
    """Transport to a service instance of this process."""

    over_link = False

    def __init__(self, instance: ServiceInstance) -> None:
        self._instance = instance

    @property
    def instance(self) -> str:
        """The id of the instance."""
        return self._instance.id

    @property
    def info(self) -> ServiceInfo:
        """Description of the service that the instance serves."""
        return self._instance.info

    def route(self) -> None:
        """Return no route: the fast path goes over links."""
        return

    def call(self, request: Request) -> LocalReply:
        """Send a call; see ``InstanceTransport``."""
        instance = self._instance
        method = instance.method(request)
        if method.streams:
            raise InvalidArgument(f"{request.title} is a stream: read it with `async for`, rather than await it")
        running = InboundCall(request, method, instance.id)
        if instance.values is None:
            return instance.on_thread(running, request.left_s())
        try:
            pending = instance.values.ask(running, request.left_s(), request.priority)
        except TidewireError as error:
            raise call_error(instance, running, error) from None
        return LocalReply(instance, pending, running, None)

    def stream(self, request: Request) -> Channel:
        """Open a stream; see ``InstanceTransport``."""
        method = self._instance.method(request)
        if not method.streams:
            raise InvalidArgument(f"{request.title} gives one value: await it, rather than read it with `async for`")
        channel = Channel(request.title, self._instance.capacity.ahead, request.deadline)
        channel.on_close = open_stream(self._instance, request, method, channel, StreamWriter).cancel
        return channel


def open_stream(
    instance: ServiceInstance, request: Request, method: Bound, channel: Channel | CallChannel, kind: type[StreamWriter]
) -> StreamWriter:
    """Begin to write a stream into a channel, or wait for admission.

    Args:
        kind: The writer of an asynchronous generator.

    Raises:
        Refused: if the instance accepts no more calls.
    """
    running = InboundCall(request, method, instance.id)
    writer = (kind if method.coroutine else PlainWriter)(instance, running, channel)
    instance.writers.add(writer)
    try:
        if instance.stopping:
            raise ActorStopped
        writer.open()
    except TidewireError as error:
        writer.leave()
        raise call_error(instance, running, error) from None
    return writer
