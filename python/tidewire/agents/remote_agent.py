"""Agents of other nodes, with their messages and requests.

A message goes to the subject of its agent. It has the payload, and the fields that differ from
their defaults.
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
"""Modes of a message. The reply is its acceptance, the reply of its handler, or the final state of
its receipt; ``TELL`` has none.
"""
_PRUNE_EVERY = 64


class RemoteAgent(Agent):
    """An agent of another node. Agents send to it as to a local agent.

    Attributes:
        node_name: Name of its node.
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
        """True while the link to the hub is lost, so that the state of the agent is unknown."""
        return self._connection.is_lost

    def statistics(self) -> dict[str, Any]:
        """Return identity, status and node of the agent. Its own node has the counters."""
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
        self.pending_retries: dict[int, Any] = {}
        self.context: dict[str, Any] = {}

    @property
    def ended(self) -> bool:
        """True if the agent has ended."""
        return not self.ref.alive

    def check_queue(self) -> None:
        """Do nothing: the node of the agent warns of a long queue."""

    def settle_receipts(self) -> None:
        """Do nothing: the node of the agent settles receipts."""

    @property
    def engine(self) -> None:
        """None: the node of the agent has the dead letters."""
        return None

    def settling_dead_letters(self) -> AbstractContextManager[None]:
        """Return an empty context: the node of the agent settles them."""
        return nullcontext()

    def failed(self, message: Message, error: BaseException | None = None) -> None:
        """Settle the receipt of a message that was not accepted."""
        if message.flags & HAS_RECEIPT:
            self.receipts.discard(message.receipt)
            message.receipt.mark("failed", error)

    def close(self) -> None:
        """Remove the agent from the directory."""
        self.closed, self.ref.alive = True, False
        self.directory.remove(self)  # type: ignore[arg-type]
        for receipt in list(self.receipts):
            receipt.mark("failed")
        self.receipts.clear()


class RemoteRef:
    """Reference to an agent of another node, with the methods of an actor reference.

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
        """Number of messages from this node without an outcome."""
        self._open_calls = [call for call in self._open_calls if not _is_over(call())]
        return len(self._open_calls)

    def send(self, message: Message, priority: str) -> Pending:
        """Send a message. The pending resolves when the remote mailbox has accepted it."""
        if message.flags & HAS_RECEIPT:
            return self._send_with_receipt(message, priority)
        return self._call(SEND, message, None, priority)

    def tell(self, message: Message, priority: str) -> bool:
        """Send a message without waiting for its acceptance."""
        self._connection.link.publish(self._subject, packed(TELL, message), priority)
        return True

    def ask(self, message: Message, timeout: float | EllipsisType | None, priority: str) -> Pending:
        """Send a request, within the deadline of the current call.

        Raises:
            AskTimeout: if the deadline of the current call has passed.
        """
        seconds = self._connection.node._engine.ask_timeout() if timeout is ... else timeout
        deadline = nested_deadline(f"request to {self._id!r}", seconds, current())
        return self._call(ASK, message, None if deadline is None else max(0.0, deadline - monotonic()), priority)

    def _call(self, mode: str, message: Message, timeout: float | None, priority: str) -> Pending:
        node = self._connection.node
        pending = self._connection.link.call(node._engine, self._subject, packed(mode, message), timeout, priority)
        if len(self._open_calls) % _PRUNE_EVERY == _PRUNE_EVERY - 1:
            self._open_calls = [call for call in self._open_calls if not _is_over(call())]
        self._open_calls.append(weakref.ref(pending))
        return pending

    def _send_with_receipt(self, message: Message, priority: str) -> Pending:
        # Sent after the message, so that the remote node knows the receipt.
        message_id, receipt = message.id, message.receipt
        accepted = self._call(SEND, message, None, priority)
        node = self._connection.node
        settled = self._connection.link.call(
            node._engine, self._subject, [SETTLED, message_id, 0.0, {}], None, priority
        )
        node._on_loop(
            lambda _: start_task(_settle(settled, receipt, lambda error: self._keep_dead_letter(message, error)))
        )
        return accepted

    def _keep_dead_letter(self, message: Message, error: TidewireError) -> None:
        """Store a message as a dead letter here when the node of its agent is lost."""
        self._connection.node._engine.lost(self._id, message, "stopped", f"{type(error).__name__}: {error}")


async def _settle(settled: Pending, receipt: Receipt, on_lost: Callable[[TidewireError], None]) -> None:
    """Await the outcome of a message at another node, and settle its receipt."""
    try:
        state, text = await settled
    except TidewireError as error:
        on_lost(error)
        receipt.mark("failed", error)
    else:
        receipt.mark(state, None if text is None else RemoteError(text.partition(":")[0], text, ""))


def packed(mode: str, message: Message) -> list[Any]:
    """Return the wire form of a message, with the trace context of its sender."""
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
    """Return the mode and the message of a wire form."""
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
