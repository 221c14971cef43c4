"""Subscriptions that are read with ``async for``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidewire.supervision import Mailbox

if TYPE_CHECKING:
    import asyncio

    from tidewire._binding import ActorRef, Context, Subscription
    from tidewire.node import Node


@dataclass(frozen=True)
class Envelope:
    """A published message with what belongs to it.

    Attributes:
        subject: The subject it was published on.
        message: The message itself.
        headers: The headers it was published with; empty if there were none.
        sender: The actor in whose handler it was published, or None.
    """

    subject: str
    message: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    sender: ActorRef | None = None


class _Feeder:
    """The actor behind a stream: it gives its readers one message after the other, and says when it
    ends.
    """

    def __init__(self, next: asyncio.Queue[Envelope | None]) -> None:
        self._next = next

    async def receive(self, message: Any, ctx: Context) -> None:
        await self._next.put(Envelope(ctx.subject or "", message, ctx.headers or {}, ctx.sender))

    async def stopped(self) -> None:
        _end(self._next)


def _end(queue: asyncio.Queue[Envelope | None]) -> None:
    """Tell a reader that waits that nothing more comes. One that is not empty has none that
    waits.
    """
    if queue.empty():
        queue.put_nowait(None)


class SubscriptionStream:
    """Messages of a pattern, as an asynchronous iterator. Made by ``node.subscription(...)``.

    A reader that is slow fills the stream's mailbox; what happens then is the stream's overflow
    policy.
    """

    def __init__(self, node: Node, pattern: str, mailbox: Mailbox, queue: str | None) -> None:
        self._node = node
        self._pattern = pattern
        self._mailbox = mailbox
        self._group = queue
        import asyncio

        # None is said to readers that wait when nothing more comes.
        self._next: asyncio.Queue[Envelope | None] = asyncio.Queue(maxsize=1)
        self._actor: ActorRef | None = None
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> SubscriptionStream:
        self._actor = self._node.spawn(_Feeder(self._next), mailbox=self._mailbox)
        try:
            self._subscription = self._node._subscribe(self._pattern, self._actor, self._group, listens=True)
            await self._subscription
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        await self._end()

    async def _end(self) -> None:
        if self._subscription is not None:
            self._subscription.unsubscribe()
        if self._actor is not None:
            actor, self._actor = self._actor, None
            stopping = actor.stop(drain=False, timeout=1.0)
            # A message that nobody will read any more holds the handler up: take it.
            while not self._next.empty():
                self._next.get_nowait()
            await stopping
            _end(self._next)

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        # The node may have ended, and this actor with it.
        if self._actor is None or (self._next.empty() and not self._actor.alive):
            raise StopAsyncIteration
        envelope = await self._next.get()
        if envelope is None or not (self._actor is not None and self._actor.alive):
            # Others may wait as well.
            _end(self._next)
        if envelope is None:
            raise StopAsyncIteration
        return envelope

    def __repr__(self) -> str:
        return f"<SubscriptionStream {self._pattern}>"
