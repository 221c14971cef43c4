"""Durable handlers and command workers of one service instance: their start, drain and end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._binding import ChangeCounter
from tidewire._log import log
from tidewire._node.ledger import Ledger
from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import LoopCall
from tidewire._runtime.current import running_loop
from tidewire.services.contract import type_hints

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tidewire._runtime.steps import Steps
    from tidewire.node import Node
    from tidewire.services.contract.command import Command
    from tidewire.services.contract.methods import Bound, Event
    from tidewire.services.instances.instance import ServiceInstance
    from tidewire.streams.command_worker import CommandWorker
    from tidewire.streams.consumer import Consumer
    from tidewire.streams.durable_subscription import DurableSubscription

_LAST_S = 1.0


class DurableHandlers:
    """The durable handlers of an instance.

    Args:
        node: The node that runs them, and whose streams they read.
        instance: The instance.
        events: The events, each with its handler.
        commands: The commands, each with its handler.
        dispatcher: Dispatcher whose threads run plain functions.

    Raises:
        InvalidArgument: if the node has no storage backend.
    """

    def __init__(
        self,
        node: Node,
        instance: ServiceInstance,
        events: list[tuple[Event, Bound]],
        commands: list[tuple[Command, Bound]],
        dispatcher: str,
    ) -> None:
        from tidewire.streams.command_worker import CommandWorker
        from tidewire.streams.durable_subscription import DurableSubscription

        home = node._home()
        self.rests = ChangeCounter()
        self.title = f"durable handlers of {instance.info.name!r}"
        self._node = node
        self._is_stopping = False
        self._workers: list[DurableSubscription | CommandWorker] = []
        for event, bound in events:
            parameter, takes_value = _event_parameter(event)
            self._workers.append(
                DurableSubscription(
                    instance,
                    home,
                    bound,
                    event.mark.subject,
                    event.mark.durable,
                    parameter,
                    takes_value,
                    dispatcher,
                    self.rests,
                )
            )
        for command, bound in commands:
            self._workers.append(
                CommandWorker(instance, node._command_home(), bound, command.mark, dispatcher, self.rests)
            )
        node._ensure_loop()
        node._waits_for.append(self)
        node._at_goodbye.append(self.leave)
        self._is_awaited = False
        self.opening: Future[None] = LoopCall(self._node, self._open()).future
        self.opening.add_done_callback(self._opened)

    @property
    def consumers(self) -> dict[str, Consumer]:
        """The open consumers, by the names given as ``durable``."""
        found = {one.mark.name: one.consumer for one in self._workers if one.consumer is not None}
        return {str(name): consumer for name, consumer in found.items()}

    def opened(self) -> Awaitable[None]:
        """Wait until all have begun, or raise the error of their start. A cancelled wait does not
        stop the start.
        """
        self._is_awaited = True
        return self._wait_opened()

    async def _wait_opened(self) -> None:
        try:
            await asyncio.shield(asyncio.wrap_future(self.opening))
        except asyncio.CancelledError:
            # Nobody else reports an error now.
            self._is_awaited = False
            if self.opening.done():
                self._opened(self.opening)
            raise

    def opened_blocking(self) -> None:
        """Block this thread until all have begun; see ``opened``."""
        self._is_awaited = True
        self.opening.result()

    def _opened(self, opening: Future[None]) -> None:
        if not self._is_awaited and not opening.cancelled() and (error := opening.exception()) is not None:
            fields = {"title": self.title, "node": self._node.name, "error": error}
            log.error("consumer.start_failed", "%(title)s: they did not begin: %(error)s", **fields)

    def is_idle(self) -> bool:
        """Return True if no event or command is handled; while stopping, if all have ended."""
        loop = self._node._loop
        if loop is None or loop.is_closed():
            return True
        return all(one.is_over if self._is_stopping else one.is_idle for one in self._workers)

    def leave(self) -> None:
        """Drain: stop fetching, and handle the fetched events. From any thread; ``is_idle`` is true
        afterwards.
        """
        self._is_stopping = True
        self._on_loop(self._drain)

    def cut(self) -> None:
        """Interrupt all handlers, and release their events. From any thread."""
        self._is_stopping = True
        self._on_loop(self._cut)

    def stopping(self, drain: bool, timeout: float | None) -> Steps[Ledger]:
        """End them. Fetched events are handled within the timeout, or released; a failed event
        counts as released.
        """
        yield LoopCall(self._node, self._stop(drain, timeout))
        return Ledger.total([Ledger(*one.counts, 0) for one in self._workers])

    async def _open(self) -> None:
        for one in self._workers:
            await one.open()

    async def _stop(self, drain: bool, timeout: float | None) -> None:
        until = None if timeout is None else monotonic() + timeout
        self._is_stopping = True
        self.opening.cancel()
        if drain:
            self._drain()
            await steps.awaited(self.over(until))
        self._cut()
        last = monotonic() + _LAST_S
        await steps.awaited(self.over(last if until is None else max(last, until)))
        for one in self._workers:
            one.end()
        node = self._node
        node._waits_for = [one for one in node._waits_for if one is not self]
        node._at_goodbye = [hook for hook in node._at_goodbye if hook != self.leave]

    def over(self, until: float | None) -> Steps[None]:
        """Wait until all have ended, and their settlements are stored."""
        while True:
            seen = self.rests.count
            if all(one.is_over for one in self._workers):
                return
            left_s = None if until is None else until - monotonic()
            if left_s is not None and left_s <= 0:
                return
            yield self._node._engine.changed(self.rests, seen, left_s)

    def _drain(self) -> None:
        for one in self._workers:
            one.drain()

    def _cut(self) -> None:
        for one in self._workers:
            one.cut()

    def _on_loop(self, call: Any) -> None:
        loop = self._node._loop
        if loop is None or loop.is_closed():
            return
        if running_loop() is loop:
            call()
        else:
            loop.call_soon_threadsafe(call)


def _event_parameter(event: Event) -> tuple[str | None, bool]:
    """Return the parameter for the event, and whether the first parameter is its value."""
    function = event.function
    for name, hint in type_hints.written_for(type_hints.innermost(function.call)).items():
        if name != "return" and type_hints.is_event(
            function.hints.unresolved.get(name, function.hints.of.get(name, hint))
        ):
            return name, function.signature.parameters[0].name != name
    return None, True
