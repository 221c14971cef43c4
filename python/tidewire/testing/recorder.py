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
    """Records what is published on the subjects of a pattern, in its block: ``async with
    Recorder(node, "orders.>") as orders``, or ``with`` in a plain thread, where ``orders.sync`` has
    the blocking ``next``. Requests are not recorded.

    Args:
        node: The node that hears the messages.
        pattern: As for ``node.subscribe``, which raises on entry what it has against it.
        capacity: Messages that it stores. After one more, ``next`` fails.

    Attributes:
        seen: All messages so far, oldest first, each a ``tw.Envelope``.
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
        """Wait for so many messages that ``next`` has not returned yet, at most ``timeout``
        seconds, and return them, oldest first. A wait that is cancelled or fails takes none.

        Raises:
            AssertionError: if they do not come in time, or more came than the recorder stores; the
                message lists those that came.
        """
        return await steps.awaited(self._next(count, timeout))

    def _next(self, count: int = 1, timeout: float = 5.0) -> Steps[list[Envelope]]:
        end = monotonic() + timeout
        while True:
            # Before the look: what comes meanwhile is looked at again.
            rang, came, left_s = self._changes.count, self.seen[self._taken :], end - monotonic()
            if len(came) >= count and not self._lost:
                self._taken += count
                return came[:count]
            if left_s <= 0 or self._lost:
                lost = f", and {self._lost} over its capacity={self._capacity}" if self._lost else ""
                listed = ", ".join(f"{one.subject} {short(one.message)}" for one in came[:_LISTED_MAX])
                raise AssertionError(f"{self._pattern}: {len(came)} of {count} came in {timeout} s{lost}: {listed}")
            yield self._node._engine.changed(self._changes, rang, left_s)

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
    """Blocking calls of a recorder, at ``recorder.sync``."""

    next = blocking(Recorder.next, "_next")
