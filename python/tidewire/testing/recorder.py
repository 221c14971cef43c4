"""Recorder of published messages."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire._binding import ChangeCounter
from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import Blocking, blocking, refuse_loop
from tidewire.services.contract.names import short
from tidewire.subscription import Envelope

if TYPE_CHECKING:
    from typing import Self

    from tidewire._binding import Context
    from tidewire._runtime.steps import Steps
    from tidewire.node import Node

_LISTED_MAX = 20


class Recorder:
    """Recorder of the messages on the subjects of a pattern. Requests are not recorded.

    It records within its block: ``async with Recorder(node, "orders.>") as orders``. In a plain
    thread use ``with`` and the blocking ``orders.sync.next``.

    Args:
        node: The subscribing node.
        pattern: Pattern as for ``node.subscribe``. Entering the block raises the same errors.
        capacity: Maximum number of recorded messages. After one more, ``next`` fails.

    Attributes:
        seen: All recorded messages, oldest first, each a ``tw.Envelope``.
    """

    def __init__(self, node: Node, pattern: str, capacity: int = 10_000) -> None:
        self.seen: list[Envelope] = []
        self.sync = RecorderSync(self, node)
        self._node, self._pattern, self._capacity = node, pattern, capacity
        self._changes, self._taken, self._lost = ChangeCounter(), 0, 0

    def _record(self, message: Any, ctx: Context) -> None:
        if len(self.seen) < self._capacity:
            self.seen.append(Envelope(ctx.subject or "", message, ctx.headers or {}, ctx.sender))
        else:
            self._lost += 1
        self._changes.ring()

    async def next(self, count: int = 1, timeout: float = 5.0) -> list[Envelope]:
        """Wait for the next ``count`` messages, and return them, oldest first. A wait that is
        cancelled or fails consumes none.

        Args:
            count: Number of messages.
            timeout: Timeout in seconds.

        Raises:
            AssertionError: if the timeout passes first, or the capacity is exceeded; the message
                lists the received messages.
        """
        return await steps.awaited(self._next(count, timeout))

    def _next(self, count: int = 1, timeout: float = 5.0) -> Steps[list[Envelope]]:
        deadline = monotonic() + timeout
        while True:
            # Read before the messages, so that a later message ends the wait.
            count_before, pending, left_s = self._changes.count, self.seen[self._taken :], deadline - monotonic()
            if len(pending) >= count and not self._lost:
                self._taken += count
                return pending[:count]
            if left_s <= 0 or self._lost:
                lost = f", and {self._lost} over its capacity={self._capacity}" if self._lost else ""
                listed = ", ".join(f"{one.subject} {short(one.message)}" for one in pending[:_LISTED_MAX])
                raise AssertionError(f"{self._pattern}: {len(pending)} of {count} came in {timeout} s{lost}: {listed}")
            yield self._node._engine.changed(self._changes, count_before, left_s)

    async def __aenter__(self) -> Self:
        self._subscription = self._node._subscribe(self._pattern, self._record, None, listens=True)
        await self._subscription
        return self

    async def __aexit__(self, *error: object) -> None:
        self._subscription.unsubscribe()

    def __enter__(self) -> Self:
        refuse_loop("with", "write async with")
        self._subscription = self._node._subscribe(self._pattern, self._record, None, listens=True).wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._subscription.unsubscribe()


class RecorderSync(Blocking[Recorder]):
    """Blocking methods of a recorder, at ``recorder.sync``."""

    next = blocking(Recorder.next, "_next")
