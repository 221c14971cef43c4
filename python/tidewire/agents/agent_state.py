"""The state of one agent: inbound messages, retries that wait, counters."""

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

_LATER_KEPT_S = 60.0


class Later(NamedTuple):
    """A message that waits to be tried again."""

    due: float
    timer: Timer
    message: Message
    error: str


class AgentState:
    """The inside of an agent.

    Counters are written under the interpreter's lock by one statement each; they are exact on
    builds that have that lock.
    """

    ref: ActorRef

    def __init__(self, node: Node, directory: Directory, id: str, retry: Retry, warning_level: int) -> None:
        self.node = node
        self.directory = directory
        # The fast path of senders finds nobody here, and adds no headers.
        self.agent_states = directory.agent_states if _trace_context.spans is None else {}
        self.id = id
        self.recipients = (id,)
        self.retry = retry
        self.warning_level = warning_level
        self.context: dict[str, Any] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.queues: dict[str, str | None] = {}
        self.receipts: set[Receipt] = set()
        self.later: dict[int, Later] = {}
        self._later_max = 64
        self.sent = self.retried = self.expired = self.failed_in_row = 0
        self.warned = False
        self.started = self.closed = False
        self.max_deliveries = 1
        self.durable: Durable | None = None

    # A message comes in

    def begin(self, given: Any, context: Any) -> Message:
        """Return an inbound payload as a message whose handler may begin.

        Raises:
            MessageExpired: if its time to live is over.
        """
        message = given if isinstance(given, Message) else raw(given, None if context is None else context.subject)
        if message is not given and context is not None:
            message.headers = context.headers or {}
            message.sender = message.headers.get("tw-sender", "")
            message.flags = IS_ASKED if context.asked else 0
        flags = message.flags
        if flags & IS_AGAIN:
            self.later.pop(id(message), None)
        if flags & EXPIRES and message.expired:
            raise self.late(message)
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

    def late(self, message: Message) -> MessageExpired:
        """Count a message whose time to live is over, and return the error that says so."""
        self.expired += 1
        if message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("expired")
        return MessageExpired(f"message {message.id}: not handled within {message.ttl} s of its creation")

    def tries_again(self, message: Any, error: BaseException, final: bool = False) -> bool:
        """Note that a handler failed. Answers whether the message will be tried again, so that its
        error is not raised.

        The requester of a request learns of its error at once, and retries by itself. The same is
        true of a request without a message around it: None in place of the error would be a wrong
        answer. A ``final`` error is never retried.

        Raises:
            GivenUp: if the message has had its retries, or the error is final: the engine shall not
                deliver it again either.
        """
        self.failed_in_row += 1
        if message.__class__ is not Message:
            return False
        message.context = None
        is_request = message.kind == "request" or message.flags & IS_ASKED
        retry = self.retry if message.retry is None else message.retry
        # Ctrl-C came, of all moments, during this handler: the program ends.
        final = final or isinstance(error, KeyboardInterrupt)
        if not (is_request or final) and message.delivery <= retry.limit:
            self._again(message, retry.wait_s(message.delivery), error)
            return True
        if final or (retry.limit and not is_request):
            self.failed(message, error)
            raise GivenUp(error) from None
        if not self._is_delivered_again(message):
            self.failed(message, error)
        return False

    def _is_delivered_again(self, message: Message) -> bool:
        """Return whether the engine delivers a message again, as far as its receipt has to know."""
        if not message.flags & HAS_RECEIPT:
            return False
        message.receipt.failures += 1
        again: bool = message.receipt.failures < self.max_deliveries
        return again

    def failed(self, message: Any, error: BaseException | None = None) -> None:
        """Note that a message will not be handled."""
        if message.__class__ is Message and message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("failed", error)

    def _again(self, message: Message, wait_s: float, error: BaseException) -> None:
        again = msgspec.structs.replace(message, delivery=message.delivery + 1, flags=message.flags | IS_AGAIN)
        self.retried += 1
        text = "%(agent)s: attempt %(attempt)d failed, again in %(wait_s).3f s: %(error)s"
        fields = {"node": self.node.name, "agent": self.id, "attempt": message.delivery, "error": _text(error)}
        log.debug("agent.message_retried", text, **fields, wait_s=wait_s)
        # Not later than the timer fires: what it finds waits no more.
        due = monotonic() + wait_s
        timer = self.node.schedule(wait_s, self.ref, again, priority=message.priority)
        self.later[id(again)] = Later(due, timer, again, _text(error))
        if len(self.later) > self._later_max:
            self._forget_delivered()

    def _forget_delivered(self) -> None:
        """Forget retries that were delivered long ago: each waits in the mailbox, or found it full
        and is a dead letter.
        """
        oldest = monotonic() - _LATER_KEPT_S
        for key, later in list(self.later.items()):
            if later.due < oldest:
                self.later.pop(key, None)
        self._later_max = 64 + 2 * len(self.later)

    @property
    def waiting_again(self) -> int:
        """How many messages wait to be tried again."""
        now = monotonic()
        return sum(later.due > now for later in list(self.later.values()))

    # Watching the queue

    def look_at_queue(self) -> None:
        """Warn once when the queue grows over the warning level, and again only after it was down
        to half of it.
        """
        depth = self.ref.outstanding
        if depth >= self.warning_level and not self.warned:
            self.warned = True
            text = "%(agent)s: %(waiting)s messages wait, the warning level is %(limit)s"
            fields = {"node": self.node.name, "agent": self.id, "waiting": depth, "limit": self.warning_level}
            log.warning("agent.queue_long", text, **fields)
        elif self.warned and depth <= self.warning_level // 2:
            self.warned = False

    # The end

    @property
    def ended(self) -> bool:
        """True if its actor has terminated. An agent that still drains is not alive, but keeps its
        name.
        """
        return not self.ref.alive and self.node.lookup(self.id) != self.ref

    def look(self) -> None:
        """Settle receipts that nobody else settles: of messages that were dropped, and of an actor
        that ended without its hook.
        """
        self.directory.look_at_letters(self.node)
        if self.ended:
            self.close()

    @property
    def engine(self) -> Engine:
        """Engine of its node: it stores the agent's dead letters and signals changes of them."""
        return self.node._engine

    def followed(self) -> AbstractContextManager[None]:
        """Meanwhile receipts of messages that become dead letters are settled at once."""
        return self.directory.followed(self.node)

    def withdraw(self) -> None:
        """Let other nodes find the agent no more."""
        connection = self.node._connection
        if connection is not None and connection.is_joined:
            connection.agents.withdraw(self)

    def close(self) -> None:
        """Forget the agent, and give up its pending retries. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        if self.durable is not None:
            self.durable.leave()
        self.directory.remove(self)
        self.withdraw()
        for later in list(self.later.values()):
            if later.timer.cancel():
                self.node._give_up(self.ref, later.message, "stopped", later.error)
        self.later.clear()
        for receipt in list(self.receipts):
            receipt.mark("failed")
        self.receipts.clear()


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    # The text of an error is the user's code, too.
    except Exception:  # noqa: BLE001
        return type(error).__name__
