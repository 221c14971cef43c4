"""Face of a handler whose events or commands the node fetches and settles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.services.instances.inbound_call import Failure, InboundCall
from tidewire.services.instances.thread_workers import ThreadWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidewire._binding import CommandWorker, DurableSubscription
    from tidewire.services.contract.methods import Bound
    from tidewire.services.instances.instance import ServiceInstance
    from tidewire.streams.home import Home


class StreamWorker:
    """A durable handler or a command of one instance. All but ``title`` is for the node's event
    loop.

    Args:
        host: The instance that it belongs to.
        home: Storage backend of its events.
        bound: The function.
        concurrency: How many run at once.
        dispatcher: Dispatcher whose threads run a plain function.
    """

    def __init__(self, host: ServiceInstance, home: Home, bound: Bound, concurrency: int, dispatcher: str) -> None:
        self.title = f"{host.info.name}.{bound.name}"
        self._host, self._home, self._bound = host, home, bound
        self._threads = (
            None
            if bound.coroutine
            else ThreadWorkers(host.node, ConcurrencyLimits(concurrency, 0, 0, 1), dispatcher, None)
        )
        self._core: CommandWorker | DurableSubscription | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """True if nothing is under way, and nothing is to be settled."""
        return self._core is None or self._core.is_idle()

    @property
    def is_over(self) -> bool:
        """True if it was drained, and nothing is left."""
        return self._core is None or self._core.is_over()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of fetched, handled and returned deliveries."""
        return (0, 0, 0) if self._core is None else self._core.counts()

    def drain(self) -> None:
        """Begin nothing more. Running handlers end."""
        if self._core is not None:
            self._core.drain()

    def cut(self) -> None:
        """Begin nothing more, interrupt what runs, and return all of it."""
        if self._core is not None:
            self._core.cut()

    def end(self) -> None:
        """Release everything: nobody waits for it any more."""
        if self._core is not None:
            self._core.end()
        for task in self._tasks:
            task.cancel()
        if self._threads is not None:
            self._threads.end()

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_thread(self, running: InboundCall, call: Callable[[], Any]) -> Any:
        token = running.enter()
        try:
            return call()
        # It belongs to the event or the command, and not to the actor that ran it.
        except BaseException as error:  # noqa: BLE001
            return Failure(error)
        finally:
            running.leave(token)
