"""Base class of a node, and its event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from tidewire._runtime import current
from tidewire.errors import NodeStopped

if TYPE_CHECKING:
    import asyncio

    from tidewire._binding import ActorRef, Bridge, ChangeCounter, Engine
    from tidewire._runtime.loop_thread import LoopThread
    from tidewire.links.connection import Connection
    from tidewire.node import Node


class IdlePart(Protocol):
    """Part of a node that delays its idle state and its stop.

    Attributes:
        rests: Counter that changes when it may be idle.
        title: Name in error messages.
    """

    rests: ChangeCounter
    title: str

    def is_idle(self) -> bool:
        """Return True if it is idle."""
        ...


class Base:
    """Shared state of the parts of a node; ``Node`` initializes it."""

    name: str
    _engine: Engine
    _connection: Connection | None
    _loop: asyncio.AbstractEventLoop | None
    _loop_thread: LoopThread | None
    _lock: threading.Lock
    _self: Callable[[], Node | None]
    _stopped: bool
    _at_goodbye: list[Callable[[], object]]
    _at_abort: list[Callable[[], object]]
    _waits_for: list[IdlePart]

    @property
    def _as_node(self) -> Node:
        """The same object, typed as the node."""
        return cast("Node", self)

    def _check(self) -> None:
        self._engine.check()
        if self._stopped:
            raise NodeStopped(f"{self!r} has been stopped: make a new one")

    def _bind_running_loop(self) -> None:
        import asyncio

        from tidewire._runtime.loop import bridge_of, uses

        self._loop = asyncio.get_running_loop()
        self._engine.bind(bridge_of(self._loop))
        uses(self)

    def _follow(self, bridge: Bridge, loop: asyncio.AbstractEventLoop) -> None:
        """Move the node to another loop, the one of this thread, if its own is closed."""
        # Also during a stop: its coroutines could not end otherwise.
        if self._as_node._ledger is not None or self._loop is None or not self._loop.is_closed():
            return
        self._loop = loop
        self._engine.bind(bridge)
        if self._connection is not None:
            self._connection.follow(bridge)

    def _on_loop(self, call: Callable[[Bridge], object]) -> None:
        """Call a function with the bridge of the node's loop, on its thread, and wait for it."""
        import asyncio

        from tidewire._runtime.loop import bridge_of

        self._ensure_loop()
        assert self._loop is not None
        if current.running_loop() is self._loop:
            call(bridge_of(self._loop))
            return

        async def on_loop() -> None:
            call(bridge_of(asyncio.get_running_loop()))

        asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result()

    def _ensure_loop(self) -> None:
        """Bind the node to a loop: the running one, or else one in its own thread."""
        self._engine.check()
        with self._lock:
            if self._engine.is_bound and not (self._loop is not None and self._loop.is_closed()):
                return
            if current.running_loop() is not None:
                self._bind_running_loop()
                return
            from tidewire._runtime.loop_thread import LoopThread

            self._loop_thread = LoopThread(f"{self.name}-asyncio")
            self._loop_thread.call(self._bind_running_loop)

    def _give_up(self, ref: ActorRef, message: Any, reason: str, error: str | None) -> None:
        self._engine.give_up(ref, message, reason, error)
