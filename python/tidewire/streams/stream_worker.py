"""Worker of a handler whose events or commands the node fetches and settles."""

from __future__ import annotations

import asyncio
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.services.instances.inbound_call import Failure, InboundCall
from tidewire.services.instances.thread_workers import spawn_workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidewire._binding import StreamWorker as Core
    from tidewire.services.contract.methods import Bound
    from tidewire.services.instances.instance import ServiceInstance
    from tidewire.streams.home import Home


class StreamWorker(ABC):
    """A durable handler or a command of one instance. Only ``title`` may be used off the node's
    event loop.

    Args:
        instance: Its service instance.
        home: Storage backend of its events.
        bound: The function.
        concurrency: Most concurrent runs.
        dispatcher: Dispatcher whose threads run a plain function.
    """

    def __init__(self, instance: ServiceInstance, home: Home, bound: Bound, concurrency: int, dispatcher: str) -> None:
        self.title = f"{instance.info.name}.{bound.name}"
        self._instance, self._home, self._bound = instance, home, bound
        self._threads = (
            None
            if bound.coroutine
            else spawn_workers(instance.node, ConcurrencyLimits(concurrency, 0, 0, 1), dispatcher, None)
        )
        self._core: Core | None = None
        self._serving: asyncio.Task[None] | None = None
        self._is_draining = self._has_ended = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """True if no run is in progress, and all deliveries are settled."""
        return self._core is None or self._core.is_idle()

    @property
    def is_over(self) -> bool:
        """True if it is drained completely."""
        return self._core is None or self._core.is_over()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of fetched, handled and returned deliveries."""
        return (0, 0, 0) if self._core is None else self._core.counts()

    def drain(self) -> None:
        """Begin no more runs. Running handlers complete."""
        self._is_draining = True
        if self._core is not None:
            self._core.drain()

    def cut(self) -> None:
        """Begin no more runs, interrupt the running handlers, and return all deliveries."""
        if self._core is not None:
            self._core.cut()

    def end(self) -> None:
        """Release all resources without waiting for running handlers."""
        self._has_ended = True
        if self._core is not None:
            self._core.end()
        if self._serving is not None:
            self._serving.cancel()
        for task in self._tasks:
            task.cancel()
        if self._threads is not None:
            self._threads.end()

    def _serve(self) -> None:
        """Run the work that the node dispatches until it ends. ``drain`` and ``end`` may have been
        called during ``open``.
        """
        assert self._core is not None
        if self._is_draining:
            self._core.drain()
        if self._has_ended:
            return self._core.end()
        self._serving = asyncio.get_running_loop().create_task(_serve(weakref.ref(self)))

    @abstractmethod
    async def _run(self, work: Any) -> None:
        """Run one dispatched attempt, or handle queued events."""

    def _call_on_thread(self, running: InboundCall, call: Callable[[], Any]) -> Any:
        token = running.enter()
        try:
            return call()
        # A failure of the event or the command, not of the actor that ran it.
        except BaseException as error:  # noqa: BLE001
            return Failure(error)
        finally:
            running.leave(token)


async def _serve(ref: weakref.ref[StreamWorker]) -> None:
    # Without a strong reference, so that a worker that was not ended can be collected.
    while (worker := ref()) is not None:
        assert worker._core is not None
        pending = worker._core.take()
        del worker
        if not (runs := await pending):
            return
        while runs and (worker := ref()) is not None:
            task = asyncio.get_running_loop().create_task(worker._run(runs.pop(0)))
            worker._tasks.add(task)
            task.add_done_callback(worker._tasks.discard)
            del worker
