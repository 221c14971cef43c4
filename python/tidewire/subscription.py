"""Subscriptions as asynchronous iterators."""

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
    """A published message with its subject, headers and sender.

    Attributes:
        subject: The subject of the message.
        message: The message.
        headers: The headers of the message; empty if it has none.
        sender: The actor that published it in its handler, or None.
    """

    subject: str
    message: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    sender: ActorRef | None = None


class _Feeder:
    """The actor of a stream: it passes messages to the readers one by one, and signals its end."""

    def __init__(self, next: asyncio.Queue[Envelope | None]) -> None:
        self._next = next

    async def receive(self, message: Any, ctx: Context) -> None:
        await self._next.put(Envelope(ctx.subject or "", message, ctx.headers or {}, ctx.sender))

    async def stopped(self) -> None:
        _end(self._next)


def _end(queue: asyncio.Queue[Envelope | None]) -> None:
    """Wake a waiting reader at the end. A queue that is not empty has none."""
    if queue.empty():
        queue.put_nowait(None)


class SubscriptionStream:
    """Messages of a pattern, as an asynchronous iterator. Made by ``node.subscription(...)``.

    A slow reader fills the mailbox of the stream, and its overflow policy applies.
    """

    def __init__(self, node: Node, pattern: str, mailbox: Mailbox, queue: str | None) -> None:
        self._node = node
        self._pattern = pattern
        self._mailbox = mailbox
        self._group = queue
        import asyncio

        # None wakes waiting readers at the end.
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
            # An unread message blocks the handler: remove it.
            while not self._next.empty():
                self._next.get_nowait()
            await stopping
            _end(self._next)

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        # The node may have stopped, and this actor with it.
        if self._actor is None or (self._next.empty() and not self._actor.alive):
            raise StopAsyncIteration
        envelope = await self._next.get()
        if envelope is None or not (self._actor is not None and self._actor.alive):
            # Wake the next waiting reader.
            _end(self._next)
        if envelope is None:
            raise StopAsyncIteration
        return envelope

    def __repr__(self) -> str:
        return f"<SubscriptionStream {self._pattern}>"
