"""Agents of this node for other nodes, and the directory of those that other nodes announce.

A node announces an agent as a subscription to ``agent.<id>`` with its type and capabilities.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tidewire import _limits
from tidewire._binding import RemoteMessage, agent_subject
from tidewire._log import log
from tidewire._runtime.futures import start_task
from tidewire.agents.message import HAS_RECEIPT, Message
from tidewire.agents.receipt import Receipt
from tidewire.agents.remote_agent import ASK, SETTLED, RemoteAgent, unpacked
from tidewire.errors import LimitExceeded, NameTaken, TidewireError
from tidewire.links.announcements import AGENT, AgentInfo
from tidewire.links.subjects import answer, fail

if TYPE_CHECKING:
    from tidewire._binding import RemoteCall
    from tidewire.agents.agent import Agent
    from tidewire.agents.agent_state import AgentState
    from tidewire.links.connection import Connection


class RemoteAgents:
    """Agents of other nodes in the directory of a node, as the hub announces them.

    Args:
        connection: The link of the node.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._endpoints: dict[str, AgentEndpoint] = {}
        self._remote: dict[str, RemoteAgent] = {}

    def announce(self, agent: Agent) -> None:
        """Announce an agent of this node."""
        endpoint = AgentEndpoint(agent._registered_state)
        self._endpoints[agent.id] = endpoint
        description = {"id": agent.id, "type": agent.type, "capabilities": sorted(agent.capabilities)}
        announcement = {AGENT: json.dumps(description, separators=(",", ":"))}
        self._connection.subscribe(agent_subject(agent.id), "", announcement, endpoint)

    def withdraw(self, agent_state: AgentState) -> None:
        """Remove it from the directory."""
        endpoint = self._endpoints.get(agent_state.id)
        if endpoint is not None and endpoint.agent_state is agent_state:
            del self._endpoints[agent_state.id]
            self._connection.unsubscribe(endpoint)

    def add(self, info: AgentInfo, node: str) -> bool:
        """Add an agent of another node. Return False if its id is taken."""
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
        """Announce the agents that were registered before there was a link."""
        for agent in self._connection.node.agents:
            if not isinstance(agent, RemoteAgent):
                self.announce(agent)


class AgentEndpoint:
    """Server side of one agent for messages and requests of other nodes.

    Args:
        agent_state: The state of the agent.
    """

    def __init__(self, agent_state: AgentState) -> None:
        self.agent_state = agent_state
        self._receipts: dict[str, Receipt] = {}

    def __call__(self, inbound: RemoteMessage | RemoteCall) -> None:
        """Deliver a message, or a call that is answered with the outcome of its message."""
        if isinstance(inbound, RemoteMessage):
            self._deliver(inbound)
            return
        message = None
        try:
            mode, message = _unpacked(inbound)
            agent_state = self.agent_state
            if mode == SETTLED:
                start_task(self._settled(inbound, message.payload))
                return
            if message.flags & HAS_RECEIPT:
                self._expect(message)
            if mode == ASK:
                message.reply_to = message.sender
                pending = agent_state.ref.ask(message, inbound.left, message.priority)
            else:
                pending = agent_state.ref.send(message, message.priority)
        except TidewireError as error:
            if message is not None and message.receipt is not None:
                self.agent_state.failed(message, error)
            fail(inbound, error)
            return
        inbound.on_cancel(pending.cancel)
        pending.add_done_callback(lambda done: answer(inbound, done))

    def _deliver(self, inbound: RemoteMessage) -> None:
        _, message = _unpacked(inbound)
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


def _unpacked(inbound: RemoteMessage | RemoteCall) -> tuple[str, Message]:
    """Return the mode and the message. Its sender has the names of the hubs between in front."""
    mode, message = unpacked(inbound.value())
    if hubs := (inbound.headers or {}).get("tw-hubs", "").split():
        message.sender = ":".join((inbound.node, *hubs[-2::-1], message.sender))
    return mode, message
