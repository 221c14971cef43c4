"""What stands behind one agent: where its messages come in, what waits to be tried again, what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidewire._log import logger
from tidewire.agents.message import EXPIRES, HAS_RECEIPT, IS_AGAIN, IS_CONTEXT, Message, raw
from tidewire.errors import MessageExpired

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, Subscription, Timer
    from tidewire.agents.directory import Directory
    from tidewire.agents.receipt import Receipt
    from tidewire.agents.retry import Retry
    from tidewire.node import Node


class Desk:
    """The inside of an agent.

    Counters are written under the interpreter's lock by one statement each; they are exact on builds that have that lock.
    """

    ref: ActorRef

    def __init__(self, node: Node, directory: Directory, id: str, retry: Retry, warning_level: int) -> None:
        self.node = node
        self.directory = directory
        self.desks = directory.desks
        self.id = id
        self.retry = retry
        self.warning_level = warning_level
        self.context: dict[str, Any] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.receipts: set[Receipt] = set()
        self.later: dict[int, tuple[Timer, Message, str]] = {}
        self.sent = self.retried = self.expired = self.failed_in_row = 0
        self.warned = False
        self.started = self.closed = False

    # A message comes in

    def begin(self, given: Any, context: Any) -> Message:
        """Return what came in as a message whose handler may begin.

        Raises:
            MessageExpired: if its time to live is over.
        """
        message = given if isinstance(given, Message) else raw(given, None if context is None else context.subject)
        if message is not given and context is not None:
            message.headers = context.headers or {}
            message.sender = message.headers.get("tw-sender", "")
        flags = message.flags
        if flags & IS_AGAIN:
            self.later.pop(id(message), None)
        if flags & EXPIRES and message.expired:
            raise self._late(message)
        if flags & HAS_RECEIPT:
            message.receipt.mark("delivered")
        message.context = context
        return message

    def takes_context(self, message: Message) -> bool:
        """Keep what another agent shares, if no handler wants it. Returns whether that was done."""
        if not message.flags & IS_CONTEXT:
            return False
        shared = message.payload
        self.context.update(shared if isinstance(shared, Mapping) else {message.sender: shared})
        self.done(message)
        return True

    def done(self, message: Message) -> None:
        """Note that a message was handled."""
        self.failed_in_row = 0
        message.context = None
        if message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("handled")

    def tries_again(self, message: Any, error: BaseException) -> bool:
        """Note that a handler failed. Answers whether the message will be tried again, so that its error is not raised.

        The requester of a request learns of its error at once; it is the requester that asks again.
        """
        self.failed_in_row += 1
        if message.__class__ is not Message:
            message = raw(message)
        message.context = None
        retry = self.retry if message.retry is None else message.retry
        if message.kind != "request" and message.delivery <= retry.limit:
            self._again(message, retry.wait_s(message.delivery), error)
            return True
        if message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("failed", error)
        return False

    def _late(self, message: Message) -> MessageExpired:
        self.expired += 1
        if message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("expired")
        return MessageExpired(f"message {message.id}: not handled within {message.ttl} s of its creation")

    def _again(self, message: Message, wait_s: float, error: BaseException) -> None:
        again = msgspec.structs.replace(message, delivery=message.delivery + 1, flags=message.flags | IS_AGAIN)
        self.retried += 1
        logger.debug("%s: attempt %d failed, again in %.3f s: %r", self.id, message.delivery, wait_s, error)
        timer = self.node.schedule(wait_s, self.ref, again, priority=message.priority)
        self.later[id(again)] = (timer, again, f"{type(error).__name__}: {error}")

    # Watching the queue

    def look_at_queue(self) -> None:
        """Warn once when the queue grows over the warning level, and again only after it was down to half of it."""
        depth = self.ref.outstanding
        if depth >= self.warning_level and not self.warned:
            self.warned = True
            logger.warning("%s: %s messages wait, the warning level is %s", self.id, depth, self.warning_level)
        elif self.warned and depth <= self.warning_level // 2:
            self.warned = False

    # The end

    def close(self) -> None:
        """Forget the agent, and give up what was to be tried again. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        self.directory.remove(self)
        for timer, message, error in list(self.later.values()):
            if timer.cancel():
                self.node._give_up(self.ref, message, "stopped", error)
        self.later.clear()
        for receipt in list(self.receipts):
            receipt.mark("failed")
        self.receipts.clear()
