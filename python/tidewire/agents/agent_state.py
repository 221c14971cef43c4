"""State of one agent: inbound messages, pending retries, and counters."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidewire import _trace_context
from tidewire._handlers import GivenUp
from tidewire._log import log
from tidewire.agents.message import EXPIRES, HAS_RECEIPT, IS_AGAIN, IS_ASKED, IS_CONTEXT, Message, raw
from tidewire.errors import MessageExpired

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tidewire._binding import ActorRef, Engine, Subscription, Timer
    from tidewire.agents.directory import Directory
    from tidewire.agents.durable import Durable
    from tidewire.agents.receipt import Receipt
    from tidewire.agents.retry import Retry
    from tidewire.node import Node

_RETRY_KEPT_S = 60.0


class PendingRetry(NamedTuple):
    """A message that waits for its retry."""

    due: float
    timer: Timer
    message: Message
    error: str


class AgentState:
    """Inner state of an agent.

    One statement updates each counter, so that counters are exact on builds with the interpreter
    lock.
    """

    ref: ActorRef

    def __init__(self, node: Node, directory: Directory, id: str, retry: Retry, warning_level: int) -> None:
        self.node = node
        self.directory = directory
        # With tracing it is empty, as the fast path of senders adds no headers.
        self.agent_states = directory.agent_states if _trace_context.spans is None else {}
        self.id = id
        self.recipients = (id,)
        self.retry = retry
        self.warning_level = warning_level
        self.context: dict[str, Any] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.queues: dict[str, str | None] = {}
        self.receipts: set[Receipt] = set()
        self.pending_retries: dict[int, PendingRetry] = {}
        self._pending_retries_max = 64
        self.sent = self.retried = self.expired = self.failed_in_row = 0
        self.is_warned = False
        self.started = self.closed = False
        self.max_deliveries = 1
        self.durable: Durable | None = None

    # Inbound messages

    def begin(self, payload: Any, context: Any) -> Message:
        """Return the message of an inbound payload, ready for its handler.

        Raises:
            MessageExpired: if its time to live has passed.
        """
        message = (
            payload if isinstance(payload, Message) else raw(payload, None if context is None else context.subject)
        )
        if message is not payload and context is not None:
            message.headers = context.headers or {}
            message.sender = message.headers.get("tw-sender", "")
            message.flags = IS_ASKED if context.asked else 0
        flags = message.flags
        if flags & IS_AGAIN:
            self.pending_retries.pop(id(message), None)
        if flags & EXPIRES and message.expired:
            raise self.expire(message)
        if flags & HAS_RECEIPT:
            message.receipt.mark("delivered")
        message.context = context
        return message

    def store_context(self, message: Message) -> bool:
        """Store shared values in ``context``. Return False if the message shares none."""
        if not message.flags & IS_CONTEXT:
            return False
        shared = message.payload
        self.context.update(shared if isinstance(shared, Mapping) else {message.sender: shared})
        self.done(message)
        return True

    def done(self, message: Message) -> None:
        """Mark a message as handled."""
        self.failed_in_row = 0
        message.context = None
        if message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("handled")

    def expire(self, message: Message) -> MessageExpired:
        """Count an expired message, and return its error."""
        self.expired += 1
        if message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("expired")
        return MessageExpired(f"message {message.id}: not handled within {message.ttl} s of its creation")

    def schedule_retry(self, message: Any, error: BaseException, final: bool = False) -> bool:
        """Count a failed handler, and schedule a retry if the policy allows one. Return True if the
        message is retried, so that its error is not raised.

        A request is not retried here: its sender receives the error, and retries by itself. This
        includes requests with a bare payload, as a reply of None would be wrong. A ``final`` error
        is never retried.

        Raises:
            GivenUp: if no retries are left, or the error is final. The engine then does not
                redeliver the message.
        """
        self.failed_in_row += 1
        if message.__class__ is not Message:
            return False
        message.context = None
        is_request = message.kind == "request" or message.flags & IS_ASKED
        retry = self.retry if message.retry is None else message.retry
        # Ctrl-C during this handler ends the program.
        final = final or isinstance(error, KeyboardInterrupt)
        if not (is_request or final) and message.delivery <= retry.limit:
            self._retry(message, retry.wait_s(message.delivery), error)
            return True
        if final or (retry.limit and not is_request):
            self.failed(message, error)
            raise GivenUp(error) from None
        if not self._is_redelivered(message):
            self.failed(message, error)
        return False

    def _is_redelivered(self, message: Message) -> bool:
        """Return True if the engine redelivers a message with a receipt."""
        if not message.flags & HAS_RECEIPT:
            return False
        message.receipt.failures += 1
        retry: bool = message.receipt.failures < self.max_deliveries
        return retry

    def failed(self, message: Any, error: BaseException | None = None) -> None:
        """Mark a message as failed, and settle its receipt."""
        if message.__class__ is Message and message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("failed", error)

    def _retry(self, message: Message, wait_s: float, error: BaseException) -> None:
        retry = msgspec.structs.replace(message, delivery=message.delivery + 1, flags=message.flags | IS_AGAIN)
        self.retried += 1
        text = "%(agent)s: attempt %(attempt)d failed, again in %(wait_s).3f s: %(error)s"
        fields = {"node": self.node.name, "agent": self.id, "attempt": message.delivery, "error": _text(error)}
        log.debug("agent.message_retried", text, **fields, wait_s=wait_s)
        # Taken before the timer starts: once it has fired, the retry counts as delivered.
        due = monotonic() + wait_s
        timer = self.node.schedule(wait_s, self.ref, retry, priority=message.priority)
        self.pending_retries[id(retry)] = PendingRetry(due, timer, retry, _text(error))
        if len(self.pending_retries) > self._pending_retries_max:
            self._forget_delivered()

    def _forget_delivered(self) -> None:
        """Remove retries that were delivered long ago: they are in the mailbox, or dead letters of
        a full mailbox.
        """
        oldest = monotonic() - _RETRY_KEPT_S
        for key, pending in list(self.pending_retries.items()):
            if pending.due < oldest:
                self.pending_retries.pop(key, None)
        self._pending_retries_max = 64 + 2 * len(self.pending_retries)

    @property
    def waiting_again(self) -> int:
        """Number of messages that wait for a retry."""
        now = monotonic()
        return sum(pending.due > now for pending in list(self.pending_retries.values()))

    # Queue warning

    def check_queue(self) -> None:
        """Warn once when the queue reaches the warning level, and again only after it has fallen to
        half of that level.
        """
        depth = self.ref.outstanding
        if depth >= self.warning_level and not self.is_warned:
            self.is_warned = True
            text = "%(agent)s: %(waiting)s messages wait, the warning level is %(limit)s"
            fields = {"node": self.node.name, "agent": self.id, "waiting": depth, "limit": self.warning_level}
            log.warning("agent.queue_long", text, **fields)
        elif self.is_warned and depth <= self.warning_level // 2:
            self.is_warned = False

    # End

    @property
    def ended(self) -> bool:
        """True if its actor has terminated. A draining agent is not alive, but keeps its name."""
        return not self.ref.alive and self.node.lookup(self.id) != self.ref

    def settle_receipts(self) -> None:
        """Settle receipts of dropped messages, and of an actor that ended without its stop hook."""
        self.directory.settle_dead_letters(self.node)
        if self.ended:
            self.close()

    @property
    def engine(self) -> Engine:
        """Engine of its node, which stores dead letters and signals their changes."""
        return self.node._engine

    def settling_dead_letters(self) -> AbstractContextManager[None]:
        """Settle receipts of dead letters at once while this context is open."""
        return self.directory.settling_dead_letters(self.node)

    def withdraw(self) -> None:
        """Remove the agent from the directories of other nodes."""
        connection = self.node._connection
        if connection is not None and connection.is_joined:
            connection.agents.withdraw(self)

    def close(self) -> None:
        """Remove the agent, and give up its pending retries. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        if self.durable is not None:
            self.durable.leave()
        self.directory.remove(self)
        self.withdraw()
        for pending in list(self.pending_retries.values()):
            if pending.timer.cancel():
                self.node._give_up(self.ref, pending.message, "stopped", pending.error)
        self.pending_retries.clear()
        for receipt in list(self.receipts):
            receipt.mark("failed")
        self.receipts.clear()


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    # ``__str__`` of the error is user code.
    except Exception:  # noqa: BLE001
        return type(error).__name__
