"""Agents of other nodes, as this node sends to them and asks them.

A message travels to the subject of its agent, as its payload and its fields that differ from the
defaults.
"""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from tidewire._binding import agent_subject
from tidewire._runtime.futures import start_task
from tidewire._trace_context import outgoing
from tidewire.agents.agent import Agent
from tidewire.agents.message import EXPIRES, HAS_RECEIPT, IS_CONTEXT, Message
from tidewire.agents.retry import NEVER, Retry
from tidewire.errors import RemoteError, TidewireError
from tidewire.services.instance_transport import current, nested_deadline

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import EllipsisType

    from tidewire._binding import Pending
    from tidewire.agents.directory import Directory
    from tidewire.agents.receipt import Receipt
    from tidewire.links.connection import Connection

SEND, ASK, SETTLED, TELL = "send", "ask", "settled", "tell"
"""The modes of a message: its acceptance, its reply or the end of its receipt is answered, or
nothing is.
"""
_LOOK_EVERY = 64


class RemoteAgent(Agent):
    """An agent of another node. Other agents send to it as to any other.

    Attributes:
        node_name: The name of its node.
    """

    def __init__(
        self, id: str, type: str, capabilities: list[str], node_name: str, connection: Connection, directory: Directory
    ) -> None:
        self.id = id
        self.type = type
        self.capabilities = frozenset(capabilities)
        self.node_name = node_name
        self._connection = connection
        self._agent_state_ = _RemoteAgentState(id, RemoteRef(id, connection), directory)  # type: ignore[assignment]

    @property
    def status(self) -> str:
        """ "remote"; "lost" while the link to the hub is lost; or "stopped"."""
        if not self._registered_state.ref.alive:
            return "stopped"
        return "lost" if self._is_lost else "remote"

    @property
    def _is_lost(self) -> bool:
        """True if the link to the hub is lost, so that the state of the agent is unknown."""
        return self._connection.is_lost

    def statistics(self) -> dict[str, Any]:
        """Return what this node knows of it; its own node has its counters."""
        return {"agent": self.id, "type": self.type, "status": self.status, "node": self.node_name}

    def __repr__(self) -> str:
        return f"<RemoteAgent {self.id!r} at {self.node_name!r}>"


class _RemoteAgentState:
    """The part of an agent's state that senders use."""

    def __init__(self, id: str, ref: RemoteRef, directory: Directory) -> None:
        self.id = id
        self.ref = ref
        self.directory = directory
        self.recipients = (id,)
        self.retry = NEVER
        self.receipts: set[Receipt] = set()
        self.sent = self.retried = self.expired = self.failed_in_row = 0
        self.started, self.closed, self.durable = True, False, None
        self.later: dict[int, Any] = {}
        self.context: dict[str, Any] = {}

    @property
    def ended(self) -> bool:
        """True if the agent has ended."""
        return not self.ref.alive

    def look_at_queue(self) -> None:
        """Its own node warns of its queue."""

    def look(self) -> None:
        """Its own node settles receipts."""

    @property
    def engine(self) -> None:
        """Its own node has its letters."""
        return None

    def followed(self) -> AbstractContextManager[None]:
        """The agent's own node is notified of them."""
        return nullcontext()

    def failed(self, message: Message, error: BaseException | None = None) -> None:
        """Note that a message was not accepted."""
        if message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("failed", error)

    def close(self) -> None:
        """Forget it."""
        self.closed, self.ref.alive = True, False
        self.directory.remove(self)  # type: ignore[arg-type]
        for receipt in list(self.receipts):
            receipt.mark("failed")
        self.receipts.clear()


class RemoteRef:
    """Reference to an agent at another node, in the place of the reference to its actor.

    Attributes:
        alive: True if its node still announces it.
    """

    def __init__(self, id: str, connection: Connection) -> None:
        self.alive = True
        self._id = id
        self._subject = agent_subject(id)
        self._connection = connection
        self._open_calls: list[weakref.ref[Pending]] = []

    @property
    def outstanding(self) -> int:
        """Number of messages from this node whose outcome is still open."""
        self._open_calls = [known for known in self._open_calls if not _is_over(known())]
        return len(self._open_calls)

    def send(self, message: Message, priority: str) -> Pending:
        """Send a message; the pending is done once the mailbox over there has it."""
        if message.flags & HAS_RECEIPT:
            return self._send_with_receipt(message, priority)
        return self._call(SEND, message, None, priority)

    def tell(self, message: Message, priority: str) -> bool:
        """Send a message without waiting to hear whether it was accepted."""
        self._connection.link.publish(self._subject, packed(TELL, message), priority)
        return True

    def ask(self, message: Message, timeout: float | EllipsisType | None, priority: str) -> Pending:
        """Ask it, as a part of the call in whose handler this code runs.

        Raises:
            AskTimeout: if that call is over.
        """
        seconds = self._connection.node._engine.ask_timeout() if timeout is ... else timeout
        deadline = nested_deadline(f"request to {self._id!r}", seconds, current())
        return self._call(ASK, message, None if deadline is None else max(0.0, deadline - monotonic()), priority)

    def _call(self, mode: str, message: Message, timeout: float | None, priority: str) -> Pending:
        node = self._connection.node
        pending = self._connection.link.call(node._engine, self._subject, packed(mode, message), timeout, priority)
        if len(self._open_calls) % _LOOK_EVERY == _LOOK_EVERY - 1:
            self._open_calls = [known for known in self._open_calls if not _is_over(known())]
        self._open_calls.append(weakref.ref(pending))
        return pending

    def _send_with_receipt(self, message: Message, priority: str) -> Pending:
        # Ordered behind the message, so that it is known there when this is asked.
        message_id, receipt = message.id, message.receipt
        accepted = self._call(SEND, message, None, priority)
        node = self._connection.node
        settled = self._connection.link.call(
            node._engine, self._subject, [SETTLED, message_id, 0.0, {}], None, priority
        )
        node._on_loop(lambda _: start_task(_settle(settled, receipt, lambda error: self._lost(message, error))))
        return accepted

    def _lost(self, message: Message, error: TidewireError) -> None:
        """Keep a message as a dead letter that is gone with the node of the agent, as far as is
        known here.
        """
        self._connection.node._engine.lost(self._id, message, "stopped", f"{type(error).__name__}: {error}")


async def _settle(settled: Pending, receipt: Receipt, lost: Callable[[TidewireError], None]) -> None:
    """Note what becomes of a message at another node."""
    try:
        state, text = await settled
    except TidewireError as error:
        lost(error)
        receipt.mark("failed", error)
    else:
        receipt.mark(state, None if text is None else RemoteError(text.partition(":")[0], text, ""))


def packed(mode: str, message: Message) -> list[Any]:
    """Return a message as it travels, with the trace context of the code that sends it."""
    fields: dict[str, Any] = {"kind": message.kind, "sender": message.sender, "recipients": message.recipients}
    if message.priority != "normal":
        fields["priority"] = message.priority
    if message.flags & EXPIRES:
        fields["ttl"] = max(0.0, (message.ttl or 0.0) - (time() - message.created))
    if headers := outgoing(message.headers):
        fields["headers"] = dict(headers)
    if message.correlation_id is not None:
        fields["correlation_id"] = message.correlation_id
    if message.flags & HAS_RECEIPT:
        fields["flags"] = HAS_RECEIPT
    if message.given_id is not None:
        fields["given_id"] = message.given_id
    if message.retry is not None:
        fields["retry"] = [message.retry.limit, message.retry.backoff_ms, message.retry.backoff_max_ms]
    return [mode, message.payload, message.created, fields]


def unpacked(value: Any) -> tuple[str, Message]:
    """Return the mode and the message of a value that travelled."""
    mode, payload, created, fields = value
    ttl, retry = fields.pop("ttl", None), fields.pop("retry", None)
    message = Message(payload, created=created, **fields)
    if ttl is not None:
        message.live_for(ttl)
    if retry is not None:
        message.retry = Retry(*retry)
    if message.kind == "context":
        message.flags |= IS_CONTEXT
    return mode, message


def _is_over(pending: Pending | None) -> bool:
    return pending is None or pending.done()
