"""Durable handler of a service instance: handles the events that the node dispatches."""

from __future__ import annotations

import asyncio
import functools
import inspect
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tidewire._log import log
from tidewire.errors import InvalidArgument
from tidewire.services.instance_transport import Request
from tidewire.services.instances.inbound_call import Failure, InboundCall
from tidewire.services.instances.instance import is_cancelled
from tidewire.services.instances.outcome import error_for_caller
from tidewire.streams.event import Event, fault_of
from tidewire.streams.home import span_us
from tidewire.streams.stream import Stream
from tidewire.streams.stream_worker import StreamWorker

if TYPE_CHECKING:
    from tidewire._binding import ChangeCounter, DeliveryWorker
    from tidewire.services.contract.durable import DurableMark
    from tidewire.services.contract.methods import Bound
    from tidewire.services.instances.instance import ServiceInstance
    from tidewire.streams.consumer import Consumer
    from tidewire.streams.home import Home


class DurableSubscription(StreamWorker):
    """One durable handler. Only ``mark`` and ``title`` may be used off the node's event loop.

    Args:
        instance: Its service instance.
        home: Storage backend of its stream.
        bound: The handler of events.
        subject: Pattern of its subjects.
        mark: The options of its declaration.
        event_parameter: Name of the parameter for the event, or None.
        takes_value: True if the first parameter is the value.
        dispatcher: Dispatcher whose threads run a plain function.
        changed: Counter that rings when the handler may have become idle.
    """

    def __init__(
        self,
        instance: ServiceInstance,
        home: Home,
        bound: Bound,
        subject: str,
        mark: DurableMark,
        event_parameter: str | None,
        takes_value: bool,
        dispatcher: str,
        changed: ChangeCounter,
    ) -> None:
        super().__init__(instance, home, bound, mark.concurrency, dispatcher)
        self.mark = mark
        self.consumer: Consumer | None = None
        self._origin = ""
        self._subject, self._changed = subject, changed
        self._event_parameter, self._takes_value = event_parameter, takes_value
        self._thread_calls: set[InboundCall] = set()
        self._is_cut = False

    async def open(self) -> None:
        """Find its stream, create or open its consumer, and start.

        Raises:
            NotFound: if no stream stores its subjects.
            InvalidArgument: if several do.
            SettingsDiffer: if its consumer exists with other settings.
        """
        mark = self.mark
        stream = mark.stream or await self._home.call("find_stream", self.title, self._subject)
        consumer = self.consumer = await Stream(self._home, stream).consumer(
            mark.name,
            filter=self._subject,
            mode=mark.mode,
            start=mark.start,
            ack_wait=mark.ack_wait,
            max_deliver=mark.max_deliver,
            backoff=mark.backoff,
            max_in_flight=mark.max_in_flight,
            order=mark.order,
        )
        name = consumer.name
        self._origin = f"{stream}/{name}"
        self._core = self._home.subscription(
            (stream, name),
            (self.title, mark.concurrency, mark.max_in_flight, span_us("ack_wait", mark.ack_wait)),
            self._changed,
            lambda line: log.warning("consumer.notice", "%(line)s", line=line, stream=stream, consumer=name),
        )
        self._serve()

    def cut(self) -> None:
        """Dispatch no more events, interrupt the running handlers, and return all events."""
        self._is_cut = True
        super().cut()
        for task in list(self._tasks):
            task.cancel()
        for running in list(self._thread_calls):
            running.cancel()

    # Events

    async def _run(self, worker: DeliveryWorker) -> None:
        """Handle queued events one by one until the queue is empty."""
        while (raw := worker.begin()) is not None:
            began = perf_counter()
            error = await self._handle(Event(*raw))
            took_us, failure = int((perf_counter() - began) * 1e6), "" if error is None else type(error).__name__
            self._instance.node._engine.took("process", self._origin, failure, took_us)
            if error is None:
                worker.end("returned", None)
            elif self._is_cut and isinstance(error, asyncio.CancelledError):
                worker.end("interrupted", None)
            else:
                worker.end("raised", fault_of(error))

    async def _handle(self, event: Event) -> BaseException | None:
        """Run the handler, and return its exception."""
        instance = self._instance
        request = Request(
            instance.info.name,
            self._bound.name,
            (),
            {},
            headers=event.headers,
            subject=event.subject,
            node=instance.node.name,
        )
        running = InboundCall(request, self._bound, instance.id)
        try:
            if self._threads is None:
                token = running.enter_task()
                try:
                    await self._call(running, event)
                finally:
                    running.leave(token)
                return None
            self._thread_calls.add(running)
            try:
                call = functools.partial(self._call_plain, running, event)
                pending, _ = self._threads.ask(functools.partial(self._call_on_thread, running, call), None, "normal")
                value = await pending
            finally:
                self._thread_calls.discard(running)
            if isinstance(value, Failure):
                raise value.error
            return asyncio.CancelledError() if running.cancelled else None
        # The stream, not the loop, receives every exception of the handler.
        except BaseException as error:
            if self._is_cut:
                return error
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            instance.log_failure(running, error)
            return error if isinstance(error, asyncio.CancelledError) else error_for_caller(self.title, error)

    def _call(self, running: InboundCall, event: Event) -> Any:
        running.request.args = (event.value,) if self._takes_value else (event,)
        if self._event_parameter is not None and self._takes_value:
            running.request.kwargs = {self._event_parameter: event}
        args, kwargs = self._instance.arguments(running)
        return self._bound.call(*args, **kwargs)

    def _call_plain(self, running: InboundCall, event: Event) -> None:
        value = self._call(running, event)
        if inspect.iscoroutine(value):
            value.close()
            raise InvalidArgument(
                f"{self.title}: a plain function gave a coroutine, and its thread has no loop: use `async def`"
            )
