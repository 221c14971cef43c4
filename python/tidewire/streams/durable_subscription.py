"""Durable subscription of one handler: fetches, handles and settles the events of its consumer."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any

from tidewire._binding import DurableSubscriptionCore, patterns_overlap
from tidewire._log import logger
from tidewire.errors import (
    InvalidArgument,
    NodeStopped,
    NotFound,
    SettingsDiffer,
    TidewireError,
    Unauthorized,
    Unsupported,
)
from tidewire.services.instance_transport import Request
from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.services.instances.inbound_call import Failure, InboundCall
from tidewire.services.instances.instance import is_cancelled
from tidewire.services.instances.outcome import error_for_caller
from tidewire.services.instances.thread_workers import ThreadWorkers
from tidewire.streams.consumer import Settled
from tidewire.streams.event import Event, fault_of
from tidewire.streams.home import Home, refused, span_us
from tidewire.streams.outage import RetryPause
from tidewire.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidewire.services.contract.durable import DurableMark
    from tidewire.services.contract.methods import Bound
    from tidewire.services.instances.instance import ServiceInstance
    from tidewire.streams.consumer import Consumer

_BATCH_MAX = 1_000
_BYTES_MAX = 4 << 20
_FINAL = (InvalidArgument, NodeStopped, NotFound, SettingsDiffer, Unauthorized, Unsupported)


class DurableSubscription:
    """One handler of durable events. All but ``mark`` and ``title`` is for the node's event loop.

    Args:
        host: The instance that it belongs to.
        home: Where its stream lives.
        bound: The handler of events.
        subject: Which subjects.
        mark: The options it was declared with.
        event_parameter: The parameter that takes the event, if there is one.
        takes_value: True if the first parameter takes the value.
        dispatcher: Dispatcher whose threads run a plain function.
        changed: Called when it may be idle.
    """

    def __init__(
        self,
        host: ServiceInstance,
        home: Home,
        bound: Bound,
        subject: str,
        mark: DurableMark,
        event_parameter: str | None,
        takes_value: bool,
        dispatcher: str,
        changed: Callable[[], None],
    ) -> None:
        self.mark = mark
        self.title = f"{host.info.name}.{bound.name}"
        self.consumer: Consumer | None = None
        self._host, self._home, self._bound, self._subject = host, home, bound, subject
        self._event_parameter, self._takes_value, self._changed = event_parameter, takes_value, changed
        batch_max = min(_BATCH_MAX, mark.max_in_flight)
        ack_wait_us = span_us("ack_wait", mark.ack_wait)
        assert ack_wait_us is not None
        self._machine = DurableSubscriptionCore(mark.concurrency, batch_max, ack_wait_us, 0)
        limits = ConcurrencyLimits(mark.concurrency, 0, 0, 1)
        self._crew = None if bound.coroutine else ThreadWorkers(host.node, limits, dispatcher, None)
        self._events: dict[tuple[int, int], Event] = {}
        self._runners: set[asyncio.Task[None]] = set()
        self._plain: set[InboundCall] = set()
        self._fetching: asyncio.Task[Any] | None = None
        self._settled: list[Settled] = []
        self._settling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause = RetryPause(host.node)
        self._is_cut = False
        # Deliveries that were fetched; of them those that were handled, and those that went back to
        # the stream.
        self.fetched = self.handled = self.returned = 0

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of fetched, handled and returned events."""
        return self.fetched, self.handled, self.returned

    # Its life

    async def open(self) -> None:
        """Find its stream, make or find its consumer, and begin.

        Raises:
            NotFound: if no stream takes its subjects.
            InvalidArgument: if several do.
            SettingsDiffer: if its consumer exists with other settings.
        """
        mark = self.mark
        stream = Stream(self._home, mark.stream or await self._find())
        self.consumer = await stream.consumer(
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
        self._pump()

    async def _find(self) -> str:
        streams = await self._home.call("list_streams")
        names = [
            found["name"]
            for found in streams
            if any(patterns_overlap(pattern, self._subject) for pattern in found["subjects"])
        ]
        if not names:
            raise NotFound(
                f"{self.title}: no stream takes {self._subject!r}: make one with node.stream(..., subjects=[...]) before it is served"
            )
        if len(names) > 1:
            raise InvalidArgument(
                f"{self.title}: the streams {', '.join(names)} take {self._subject!r}: say stream= in @tw.on"
            )
        return str(names[0])

    @property
    def is_idle(self) -> bool:
        """True if nothing is queued, handled or to be settled."""
        return self._machine.counts() == (0, 0) and not self._settled and self._settling is None

    @property
    def is_over(self) -> bool:
        """True if the subscription was drained, and each fetched event has ended and is settled."""
        return self._machine.is_over() and self.is_idle and not self._runners

    def drain(self) -> None:
        """Fetch nothing more. Fetched events are handled."""
        self._machine.drain()
        if self._fetching is not None:
            self._fetching.cancel()
        self._pump()

    def cut(self) -> None:
        """Begin nothing more, interrupt the running handlers, and give all events back."""
        self._is_cut = True
        for delivery in self._machine.cut():
            self._events.pop(delivery, None)
            self.returned += 1
            self._say((*delivery, "release", None, "", None))
        for task in list(self._runners):
            task.cancel()
        for running in list(self._plain):
            running.cancel()
        self.drain()

    def end(self) -> None:
        """Release everything: nobody waits for it any more."""
        for task in (self._settling, self._fetching):
            if task is not None:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._crew is not None:
            self._crew.end()

    # Its events

    def _pump(self) -> None:
        """Do the pending actions: begin queued events, fetch, extend."""
        queued, _ = self._machine.counts()
        loop = asyncio.get_running_loop()
        while queued > 0 and len(self._runners) < self.mark.concurrency:
            runner = loop.create_task(self._run())
            self._runners.add(runner)
            runner.add_done_callback(self._ran)
            queued -= 1
        if self.consumer is not None and (credit := self._machine.credit()):
            self._fetching = loop.create_task(self._fetch(self.consumer, credit))
            self._fetching.add_done_callback(self._fetched)
        due_s = self._machine.extend_in()
        if self._timer is None and due_s is not None:
            self._timer = loop.call_later(due_s, self._extend)
        self._changed()

    async def _fetch(self, consumer: Consumer, credit: int) -> Any:
        wait_us = self._home.wait_us
        try:
            raw = await self._home.call("fetch", consumer._stream, consumer.name, credit, _BYTES_MAX, wait_us)
        except TidewireError as error:
            await self._failed(error)
            return ()
        self._pause.end()
        return raw

    # The ends of tasks are heard of by callbacks: one that is cancelled before its first step runs
    # no code of its own.

    def _fetched(self, task: asyncio.Task[Any]) -> None:
        self._fetching = None
        if task.cancelled():
            # It drains, or the loop ends: what was on its way goes back.
            self._machine.drain()
        events = [] if task.cancelled() else [Event(fields, self) for fields in task.result()]  # type: ignore[arg-type]
        for event in events:
            self._events[event.sequence, event._ticket] = event
        self.fetched += len(events)
        for delivery in self._machine.fetched([(event.sequence, event._ticket) for event in events]):
            del self._events[delivery]
            self.returned += 1
            self._say((*delivery, "release", None, "", None))
        self._pump()

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._runners.discard(task)
        if task.cancelled() and not self._is_cut:
            # The loop ends.
            self._machine.cut()
        self._pump()

    async def _run(self) -> None:
        """Handle the queued events, one after the other, until none is left."""
        machine = self._machine
        while (delivery := machine.begin()) is not None:
            event = self._events.pop(delivery)
            if self.mark.concurrency > 1 and not machine.counts()[0]:
                self._pump()
            error = await self._handle(event)
            if event._settled:
                outcome = "settled"
            elif error is None:
                outcome = "returned"
            else:
                outcome = "interrupted" if self._is_cut and isinstance(error, asyncio.CancelledError) else "raised"
            verdict = machine.ended(delivery, outcome)
            if outcome in ("returned", "settled"):
                self.handled += 1
            else:
                self.returned += 1
            if verdict == "back":
                self._say((*delivery, "release", None, "", None))
            elif verdict:
                self._say((*delivery, verdict, None, "", fault_of(error)))

    async def _handle(self, event: Event) -> BaseException | None:
        """Run the handler, and return its exception."""
        running = InboundCall(self._request(event), self._bound, self._host.instance)
        try:
            if self._crew is None:
                token = running.enter_task()
                try:
                    await self._called(running, event)
                finally:
                    running.leave(token)
                return None
            self._plain.add(running)
            try:
                pending, _ = self._crew.ask(functools.partial(self._on_thread, running, event), None, "normal")
                value = await pending
            finally:
                self._plain.discard(running)
            if isinstance(value, Failure):
                raise value.error
            return asyncio.CancelledError() if running.cancelled else None
        # The stream, not the loop, receives every exception of the handler.
        except BaseException as error:
            if self._is_cut:
                return error
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            self._host.log_failure(running, error)
            return error if isinstance(error, asyncio.CancelledError) else error_for_caller(self.title, error)

    def _request(self, event: Event) -> Request:
        node = self._host.node.name
        return Request(
            self._host.info.name, self._bound.name, (), {}, headers=event.headers, subject=event.subject, node=node
        )

    def _called(self, running: InboundCall, event: Event) -> Any:
        running.request.args = (event.value,) if self._takes_value else (event,)
        if self._event_parameter is not None and self._takes_value:
            running.request.kwargs = {self._event_parameter: event}
        args, kwargs = self._host.arguments(running)
        return self._bound.call(*args, **kwargs)

    def _on_thread(self, running: InboundCall, event: Event) -> Any:
        token = running.enter()
        try:
            value = self._called(running, event)
            if inspect.iscoroutine(value):
                value.close()
                raise InvalidArgument(
                    f"{self.title}: a plain function gave a coroutine, and its thread has no loop: use `async def`"
                )
            return None
        # It belongs to the event, and not to the actor that ran it.
        except BaseException as error:  # noqa: BLE001
            return Failure(error)
        finally:
            running.leave(token)

    # Settlement of events

    async def _settle_now(self, settled: Settled) -> None:
        assert self.consumer is not None
        [result] = await self._home.call("settle", self.consumer._stream, self.consumer.name, [settled])
        error = refused(result)
        if error is not None:
            raise error

    async def _settle_soon(self, settled: Settled) -> None:
        self._say(settled)

    def _say(self, settled: Settled) -> None:
        self._settled.append(settled)
        if self._settling is None:
            self._settling = asyncio.get_running_loop().create_task(self._settle(self.consumer))

    async def _settle(self, consumer: Consumer | None) -> None:
        assert consumer is not None
        try:
            while self._settled:
                batch = self._settled[:_BATCH_MAX]
                try:
                    results = await self._home.call("settle", consumer._stream, consumer.name, batch)
                    self._pause.end()
                except TidewireError as error:
                    if await self._failed(error):
                        continue
                    results = []
                del self._settled[: len(batch)]
                stale = [
                    item
                    for item, result in zip(batch, results, strict=False)
                    if result is not None and item[2] != "working"
                ]
                if stale:
                    logger.warning(
                        "%s: %d of %d events were handled too late, event %d first: they were delivered again; allow more with ack_wait=",
                        self.title,
                        len(stale),
                        len(batch),
                        stale[0][0],
                    )
        finally:
            self._settling = None
            self._changed()

    def _extend(self) -> None:
        self._timer = None
        for delivery in self._machine.extend():
            self._say((*delivery, "working", None, "", None))
        self._pump()

    async def _failed(self, error: TidewireError) -> bool:
        """Wait before something is tried again. False: that makes no sense, and the handler
        drains.
        """
        if isinstance(error, _FINAL):
            self._machine.drain()
            if not self._is_cut:
                logger.error("%s: it handles no more events: %s", self.title, error)
            return False
        if not self._pause.has_begun:
            logger.warning("%s: its events can't be fetched or settled, and it tries again: %s", self.title, error)
        await self._pause.wait()
        return True
