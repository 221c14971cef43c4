"""Agents of other nodes, in the directory of this one, and those of this one for others.

A node announces an agent as a subscription to ``agent.<id>`` with its type and capabilities. A
message travels as its payload and its fields that differ from the defaults.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from contextlib import nullcontext
from time import time
from typing import TYPE_CHECKING, Any

from tidewire import _limits
from tidewire._binding import RemoteMessage, agent_subject
from tidewire._log import log
from tidewire.agents.agent import Agent
from tidewire.agents.message import EXPIRES, HAS_RECEIPT, IS_CONTEXT, Message
from tidewire.agents.receipt import Receipt
from tidewire.agents.retry import NEVER, Retry
from tidewire.errors import LimitExceeded, NameTaken, RemoteError, TidewireError
from tidewire.links.announcements import AGENT, AgentInfo
from tidewire.links.subjects import answer, fail

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import EllipsisType

    from tidewire._binding import Pending, RemoteCall
    from tidewire.agents.agent_state import AgentState
    from tidewire.agents.directory import Directory
    from tidewire.links.connection import Connection

_SEND, _ASK, _SETTLED, _TELL = "send", "ask", "settled", "tell"
_LOOK_EVERY = 64


class RemoteAgents:
    """Keeps the directory of a node in step with the agents that the hub announces.

    Args:
        connection: The link of the node.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._doors: dict[str, AgentSubscription] = {}
        self._remote: dict[str, RemoteAgent] = {}

    def announce(self, agent: Agent) -> None:
        """Let other nodes find an agent of this one."""
        door = AgentSubscription(agent._registered_state)
        self._doors[agent.id] = door
        says = {"id": agent.id, "type": agent.type, "capabilities": sorted(agent.capabilities)}
        described = {AGENT: json.dumps(says, separators=(",", ":"))}
        self._connection.subscribe(agent_subject(agent.id), "", described, door)

    def withdraw(self, agent_state: AgentState) -> None:
        """Remove it from the directory."""
        door = self._doors.get(agent_state.id)
        if door is not None and door.agent_state is agent_state:
            del self._doors[agent_state.id]
            self._connection.unsubscribe(door)

    def add(self, info: AgentInfo, node: str) -> bool:
        """Note an agent of another node. False: one of its id is known already."""
        directory = self._connection.node.agents
        agent = RemoteAgent(info.id, info.type, info.capabilities, node, self._connection, directory)
        try:
            directory.add(agent)
        except NameTaken:
            text = "agent %(agent)r of node %(peer)r is not found from here: one of that id is known already"
            log.warning("agent.id_taken", text, node=self._connection.node.name, agent=agent.id, peer=node)
            return False
        self._remote[agent.id] = agent
        return True

    def remove(self, id: str) -> None:
        """Forget an agent of another node."""
        agent = self._remote.pop(id, None)
        if agent is not None:
            agent._registered_state.close()

    def announce_all(self) -> None:
        """Let other nodes find the agents that were registered before there was a link."""
        for agent in self._connection.node.agents:
            if not isinstance(agent, RemoteAgent):
                self.announce(agent)


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
        return self._call(_SEND, message, None, priority)

    def tell(self, message: Message, priority: str) -> bool:
        """Send a message without waiting to hear whether it was accepted."""
        self._connection.link.publish(self._subject, _packed(_TELL, message), priority)
        return True

    def ask(self, message: Message, timeout: float | EllipsisType | None, priority: str) -> Pending:
        """Ask it."""
        engine = self._connection.node._engine
        seconds = engine.ask_timeout() if timeout is ... else timeout
        return self._call(_ASK, message, seconds, priority)

    def _call(self, mode: str, message: Message, timeout: float | None, priority: str) -> Pending:
        node = self._connection.node
        pending = self._connection.link.call(node._engine, self._subject, _packed(mode, message), timeout, priority)
        if len(self._open_calls) % _LOOK_EVERY == _LOOK_EVERY - 1:
            self._open_calls = [known for known in self._open_calls if not _is_over(known())]
        self._open_calls.append(weakref.ref(pending))
        return pending

    def _send_with_receipt(self, message: Message, priority: str) -> Pending:
        # Ordered behind the message, so that it is known there when this is asked.
        message_id, receipt = message.id, message.receipt
        accepted = self._call(_SEND, message, None, priority)
        node = self._connection.node
        settled = self._connection.link.call(
            node._engine, self._subject, [_SETTLED, message_id, 0.0, {}], None, priority
        )
        node._on_loop(lambda _: _start(_settle(settled, receipt, lambda error: self._lost(message, error))))
        return accepted

    def _lost(self, message: Message, error: TidewireError) -> None:
        """Keep a message as a dead letter that is gone with the node of the agent, as far as is
        known here.
        """
        self._connection.node._engine.lost(self._id, message, "stopped", f"{type(error).__name__}: {error}")


class AgentSubscription:
    """Where messages of other nodes to one agent come in.

    Args:
        agent_state: The state of the agent.
    """

    def __init__(self, agent_state: AgentState) -> None:
        self.agent_state = agent_state
        self._receipts: dict[str, Receipt] = {}

    def __call__(self, came: RemoteMessage | RemoteCall) -> None:
        """Take a message, or a call that is answered by what becomes of one."""
        if isinstance(came, RemoteMessage):
            self._deliver(came)
            return
        message = None
        try:
            mode, message = _unpacked(came.value())
            agent_state = self.agent_state
            if mode == _SETTLED:
                _start(self._settled(came, message.payload))
                return
            if message.flags & HAS_RECEIPT:
                self._expect(message)
            if mode == _ASK:
                message.reply_to = message.sender
                pending = agent_state.ref.ask(message, came.left, message.priority)
            else:
                pending = agent_state.ref.send(message, message.priority)
        except TidewireError as error:
            if message is not None and message.receipt is not None:
                self.agent_state.failed(message, error)
            fail(came, error)
            return
        came.on_cancel(pending.cancel)
        pending.add_done_callback(lambda done: answer(came, done))

    def _deliver(self, came: RemoteMessage) -> None:
        _, message = _unpacked(came.value())
        try:
            self.agent_state.ref.tell(message, message.priority)
        except TidewireError as error:
            reason = "stopped" if error.code == "actor_stopped" else "mailbox_full"
            self.agent_state.node._give_up(self.agent_state.ref, message, reason, str(error))

    def _expect(self, message: Message) -> None:
        if len(self._receipts) >= _limits.LINK_IN_FLIGHT.default:
            raise LimitExceeded(
                f"link_in_flight: so many receipts of {self.agent_state.id!r} are open already: wait for some"
            )
        receipt = Receipt(self.agent_state.id, self.agent_state)
        message.receipt, message.flags = receipt, message.flags | HAS_RECEIPT
        self.agent_state.receipts.add(receipt)
        self._receipts[message.id] = receipt

    async def _settled(self, call: RemoteCall, message_id: str) -> None:
        receipt = self._receipts.pop(message_id, None)
        if receipt is None:
            call.reply(["failed", "the message was not accepted"])
            return
        state = await receipt.wait()
        call.reply([state, None if receipt.error is None else f"{type(receipt.error).__name__}: {receipt.error}"])


async def _settle(settled: Pending, receipt: Receipt, lost: Callable[[TidewireError], None]) -> None:
    """Note what becomes of a message at another node."""
    try:
        state, text = await settled
    except TidewireError as error:
        lost(error)
        receipt.mark("failed", error)
    else:
        receipt.mark(state, None if text is None else RemoteError(text.partition(":")[0], text, ""))


def _packed(mode: str, message: Message) -> list[Any]:
    fields: dict[str, Any] = {"kind": message.kind, "sender": message.sender, "recipients": message.recipients}
    if message.priority != "normal":
        fields["priority"] = message.priority
    if message.flags & EXPIRES:
        fields["ttl"] = max(0.0, (message.ttl or 0.0) - (time() - message.created))
    if message.headers:
        fields["headers"] = dict(message.headers)
    if message.correlation_id is not None:
        fields["correlation_id"] = message.correlation_id
    if message.flags & HAS_RECEIPT:
        fields["flags"] = HAS_RECEIPT
    if message.given_id is not None:
        fields["given_id"] = message.given_id
    if message.retry is not None:
        fields["retry"] = [message.retry.limit, message.retry.backoff_ms, message.retry.backoff_max_ms]
    return [mode, message.payload, message.created, fields]


def _unpacked(value: Any) -> tuple[str, Message]:
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


def _start(work: Any) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


_tasks: set[asyncio.Task[Any]] = set()
