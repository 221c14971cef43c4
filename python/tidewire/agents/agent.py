"""Public class of agents."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from time import time
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from tidewire import _trace_context
from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import Blocking, blocking
from tidewire.agents import addresses
from tidewire.agents.message import Message
from tidewire.agents.retrying_request import RetryingRequest
from tidewire.agents.send_batch import SendBatch
from tidewire.errors import InvalidArgument, TidewireError

if TYPE_CHECKING:
    from tidewire._binding import ActorRef
    from tidewire._node.ledger import Ledger
    from tidewire._runtime.steps import Steps
    from tidewire.agents.agent_state import AgentState
    from tidewire.agents.retry import Retry
    from tidewire.node import Node

_QUEUE_CHECK_MASK = 63


class Agent:
    """A registered actor with an id, a type and capabilities, by which other agents address it.

    ``node.agent(handler, id=...)`` makes one of a function or an object. Your own class may derive
    from ``Agent``: its methods with ``@tw.handle`` are its handlers, and call ``self.send`` and the
    other methods of the agent.

    Attributes:
        id: Id of the agent, unique among the live agents and actors of the node.
        type: Type of the agent; empty if it has none.
        capabilities: Capabilities of the agent.
    """

    id: str = ""
    type: str = ""
    capabilities: Iterable[str] = ()
    _agent_state_: AgentState | None = None

    # Identity

    @property
    def ref(self) -> ActorRef:
        """Actor of the agent."""
        return self._registered_state.ref

    @property
    def node(self) -> Node:
        """Node of the agent."""
        return self._registered_state.node

    @property
    def _is_lost(self) -> bool:
        """True while the state of the agent is unknown."""
        return False

    @property
    def status(self) -> str:
        """ "starting", "idle", "busy", "failing" (its last message failed) or "stopped"; "standby"
        for a durable agent that is not active in this process.
        """
        agent_state = self._registered_state
        if not agent_state.ref.alive:
            return "stopped"
        if agent_state.durable is not None and not agent_state.durable.is_active:
            return "standby"
        if not agent_state.started:
            return "starting"
        if agent_state.failed_in_row:
            return "failing"
        return "busy" if agent_state.ref.outstanding else "idle"

    @property
    def context(self) -> dict[str, Any]:
        """Values that other agents shared, if the agent has no handler of kind "context"."""
        return self._registered_state.context

    def statistics(self) -> dict[str, Any]:
        """Return counters and times of its messages, and of the outcomes of messages to it."""
        agent_state = self._registered_state
        counters = {
            "sent": agent_state.sent,
            "retried": agent_state.retried,
            "expired": agent_state.expired,
            "waiting_again": agent_state.waiting_again,
        }
        identity = {
            "agent": self.id,
            "type": self.type,
            "capabilities": sorted(self.capabilities),
            "status": self.status,
        }
        return {**identity, **agent_state.ref.statistics(), **counters}

    # One way

    def send(
        self,
        payload: Any,
        to: str | Iterable[str] | None = None,
        *,
        type: str | None = None,
        capability: str | None = None,
        kind: str = "event",
        priority: str = "normal",
        ttl: float | None = None,
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        receipt: bool = False,
        correlation_id: str | None = None,
        durable: bool = False,
    ) -> Awaitable[Any]:
        """Send a message. Await the result to wait for capacity in the mailbox. If there is
        capacity, the call itself sends the message.

        Args:
            payload: The payload.
            to: Id of an agent, or several ids.
            type: Type of the recipient, in place of ``to``. Of several agents, the one with the
                least outstanding work receives the message.
            capability: Capability of the recipient, in place of ``to`` or beside ``type``.
            kind: Kind of the message.
            priority: "urgent", "high", "normal" or "low".
            ttl: Time to live in seconds. A message whose handler has not begun by then expires.
            headers: Further data of the message besides the payload.
            retry: Retry policy if its handler fails. The default is the policy of the recipient.
            receipt: True to return a ``tw.Receipt`` when awaited, not None. With several
                recipients, a dict of receipts.
            correlation_id: Id of the message that this one belongs to.
            durable: True to store the message in the inboxes of the ids in ``to``, whether these
                agents run or not. Agents that are registered with ``durable=`` handle it, with
                their own retries. Awaiting waits until it is stored. A handler of an agent with
                ``durable="state"`` stores it together with the state, when the handler returns.

        Raises:
            NoSuchTarget: if no live agent matches; nothing is sent.
            MailboxFull: if a mailbox is full and its policy is to fail; the other recipients
                receive the message.
            ActorStopped: if the recipient is stopping.
            InvalidArgument: if an argument is not allowed.
        """
        agent_state = self._agent_state_ or self._registered_state
        if durable:
            ids = addresses.durable_ids(to, type, capability, retry, receipt)
            return self._send_durably(ids, payload, kind, priority, ttl, headers, correlation_id)
        # Fast path of a message to one agent by its id, without options.
        target = agent_state.agent_states.get(to) if to.__class__ is str else None
        is_plain = type is None and capability is None and ttl is None and headers is None and retry is None
        if is_plain and target is not None and kind == "event" and correlation_id is None and not receipt:
            message = Message(payload, "event", agent_state.id, time(), target.recipients, None, priority)  # type: ignore[arg-type]
            sending = target.ref.send(message, priority)
            agent_state.sent = sent = agent_state.sent + 1
            if not sent & _QUEUE_CHECK_MASK:
                target.check_queue()
            return sending
        targets = addresses.targets(agent_state, to, type, capability)
        messages = addresses.messages(
            agent_state, targets, payload, kind, priority, ttl, headers, retry, receipt, correlation_id
        )
        return self._send_all(targets, messages, single=not addresses.is_many(to))

    def tell(
        self,
        payload: Any,
        to: str | Iterable[str] | None = None,
        *,
        type: str | None = None,
        capability: str | None = None,
        kind: str = "event",
        priority: str = "normal",
        ttl: float | None = None,
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        correlation_id: str | None = None,
    ) -> None:
        """Send as ``send`` does, but never wait: a full mailbox raises an error at once, under
        any policy.
        """
        agent_state = self._agent_state_ or self._registered_state
        target = agent_state.agent_states.get(to) if to.__class__ is str else None
        is_plain = type is None and capability is None and ttl is None and headers is None and retry is None
        if is_plain and target is not None and kind == "event" and correlation_id is None:
            message = Message(payload, "event", agent_state.id, time(), target.recipients, None, priority)  # type: ignore[arg-type]
            target.ref.tell(message, priority)
            agent_state.sent = sent = agent_state.sent + 1
            if not sent & _QUEUE_CHECK_MASK:
                target.check_queue()
            return
        targets = addresses.targets(agent_state, to, type, capability)
        messages = addresses.messages(
            agent_state, targets, payload, kind, priority, ttl, headers, retry, False, correlation_id
        )
        errors: list[TidewireError] = []
        for one, message in zip(targets, messages, strict=True):
            try:
                one._registered_state.ref.tell(message, message.priority)
                agent_state.sent += 1
            except TidewireError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def publish(self, topic: str, payload: Any, headers: Mapping[str, str] | None = None) -> int:
        """Publish on a topic. Subscribers that are not agents receive the bare payload.

        Returns:
            Number of subscriptions that accepted the message.
        """
        agent_state = self._registered_state
        accepted = agent_state.node.publish(
            topic, payload, headers={**addresses.checked_headers(headers), "tw-sender": agent_state.id}
        )
        agent_state.sent += 1
        return accepted

    def broadcast(
        self,
        payload: Any,
        *,
        type: str | None = None,
        capability: str | None = None,
        include_self: bool = False,
        priority: str = "normal",
        ttl: float | None = None,
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
    ) -> int:
        """Send to all agents, or to all with a type or a capability. It never waits.

        The sender itself is a recipient only with ``include_self``. A recipient that is full or has
        stopped does not affect the others: its message becomes a dead letter.

        Returns:
            Number of agents that accepted the message.
        """
        agent_state = self._registered_state
        agents = agent_state.directory.list(type=type, capability=capability)
        targets = [agent for agent in agents if include_self or agent is not self]
        messages = addresses.messages(
            agent_state, targets, payload, "broadcast", priority, ttl, headers, retry, False, None
        )
        return sum(self._offer(target, message) for target, message in zip(targets, messages, strict=True))

    def share(self, /, context: Any, to: str | Iterable[str] | None = None, **options: Any) -> Awaitable[Any]:
        """Share state with other agents in a message of kind "context". Options as for ``send``.

        A mapping is copied, so that later changes are not shared. Recipients without a handler of
        this kind store the values in their ``context``.
        """
        payload = dict(context) if isinstance(context, Mapping) else context
        return self.send(payload, to, kind="context", **options)

    # Requests

    def request(
        self,
        payload: Any,
        to: str | None = None,
        *,
        timeout: float | EllipsisType | None = ...,
        type: str | None = None,
        capability: str | None = None,
        priority: str = "normal",
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        correlation_id: str | None = None,
    ) -> Awaitable[Any]:
        """Send a request to another agent. Await the reply: the return value of its handler.

        Cancelling the await cancels the request.

        Args:
            payload: The payload.
            to: Id of the agent.
            timeout: Seconds until AskTimeout. A request whose handler has not begun by then is not
                handled. The default is ``ask_timeout_ms`` of the configuration.
            type: Type of the recipient, in place of ``to``. Of several agents, the one with the
                least outstanding work receives the request.
            capability: Capability of the recipient, in place of ``to`` or beside ``type``.
            priority: "urgent", "high", "normal" or "low".
            headers: Further data of the message besides the payload.
            retry: Retry policy if the handler fails; each attempt has the full ``timeout``. The
                default is the policy of the recipient.
            correlation_id: Id of the message that this one belongs to.

        Raises:
            NoSuchTarget: if no live agent matches.
            AskTimeout: if there is no reply in time.
            AskCycle: if agents would wait for each other in a cycle.
            BaseException: the error of the handler.
        """
        agent_state = self._registered_state
        if to.__class__ is str and type is None and capability is None:
            target = agent_state.agent_states.get(to) or agent_state.directory.find(to)._registered_state
        else:
            if to is not None and not isinstance(to, str):
                raise InvalidArgument(
                    f"to: {to!r} is not allowed: a request goes to one agent; gather several requests"
                )
            target = addresses.targets(agent_state, to, type, capability)[0]._registered_state
        addresses.check("request", priority, None, retry, correlation_id)
        message = Message(payload, "request", agent_state.id, time(), target.recipients, None, priority)  # type: ignore[arg-type]
        if headers or correlation_id or _trace_context.spans is not None:
            message.headers, message.correlation_id = addresses.sent_headers((target.id,), headers), correlation_id
        message.reply_to = agent_state.id
        policy = target.retry if retry is None else retry
        try:
            pending = target.ref.ask(message, timeout, priority)
        except TidewireError as error:
            if not (policy.limit and error.retryable):
                raise
            pending = None
        agent_state.sent += 1
        if pending is not None and not policy.limit:
            return pending
        return RetryingRequest(agent_state.engine, pending, target, message, timeout, policy)

    def respond(self, message: Message, value: Any) -> bool:
        """Reply to a request before its handler returns; see ``Message.respond``."""
        if not isinstance(message, Message):
            raise InvalidArgument(
                f"message: {message!r} is not a tw.Message: take it as the handler's second parameter"
            )
        return message.respond(value)

    # Topics

    def subscribe(self, topic: str, queue: str | None = None) -> list[str]:
        """Subscribe to a topic, which may contain wildcards. Return all topics with a
        subscription.

        Raises:
            InvalidArgument: if it is subscribed to the topic with another queue.
            InvalidSubject: if the topic is malformed.
        """
        agent_state = self._registered_state
        if not isinstance(topic, str):
            raise InvalidArgument(f"topic: {topic!r} is not allowed: give a subject, such as 'orders.*'")
        if topic not in agent_state.subscriptions:
            agent_state.subscriptions[topic] = agent_state.node.subscribe(topic, agent_state.ref, queue)
            agent_state.queues[topic] = queue
        elif agent_state.queues.get(topic) != queue:
            raise InvalidArgument(
                f"queue: {queue!r} is not allowed: {self!r} is subscribed to {topic!r} with queue={agent_state.queues.get(topic)!r} "
                "already: unsubscribe it first"
            )
        return list(agent_state.subscriptions)

    def unsubscribe(self, topic: str) -> list[str]:
        """End the subscription to a topic. Return all remaining topics."""
        subscription = self._registered_state.subscriptions.pop(topic, None)
        self._registered_state.queues.pop(topic, None)
        if subscription is not None:
            subscription.unsubscribe()
        return list(self._registered_state.subscriptions)

    # End

    async def active(self, timeout: float | None = None) -> int:
        """Wait until this durable agent is active in this process, and return its fencing token.
        The token is greater than the tokens of all processes before.

        Args:
            timeout: Seconds after which TimeoutError is raised; None for no limit.

        Raises:
            InvalidArgument: if the agent is not durable.
            TimeoutError: if the agent was stopped, or is not active in time.
        """
        durable = self._registered_state.durable
        if durable is None:
            raise InvalidArgument(f"{self!r} is not durable: register it with durable=")
        return await durable.active(timeout)

    async def stop(self, drain: bool = True, timeout: float | EllipsisType | None = ...) -> Ledger:
        """Stop the agent, as ``ActorRef.stop`` does. Pending retries become dead letters; durable
        messages stay in the inbox.
        """
        return await steps.awaited(self._stopping(drain, timeout))

    def _stopping(self, drain: bool = True, timeout: float | EllipsisType | None = ...) -> Steps[Ledger]:
        if self._registered_state.durable is not None:
            yield self._registered_state.durable.end_on_loop()
        ledger: Ledger = yield self._registered_state.ref.stop(drain, timeout)
        self._registered_state.close()
        return ledger

    @property
    def sync(self) -> AgentSync:
        """Blocking forms of the awaitable methods, for plain threads and plain handlers."""
        return AgentSync(self, self._registered_state.node)

    def __repr__(self) -> str:
        if self._agent_state_ is None:
            return f"<{self.__class__.__name__}, not registered>"
        kind = f" {self.type!r}" if self.type else ""
        return f"<{self.__class__.__name__} {self.id!r}{kind}, {self.status}>"

    # Internals

    @property
    def _registered_state(self) -> AgentState:
        if self._agent_state_ is None:
            raise InvalidArgument(f"{self!r} is not registered: give it to node.agent(...) first")
        return self._agent_state_

    def _send_durably(
        self,
        ids: list[str],
        payload: Any,
        kind: str,
        priority: str,
        ttl: float | None,
        headers: Mapping[str, str] | None,
        correlation_id: str | None,
    ) -> Awaitable[Any]:
        from tidewire.agents import state_transaction

        agent_state = self._registered_state
        addresses.check(kind, priority, ttl, None, correlation_id)
        message = Message(payload, kind, agent_state.id, time(), tuple(ids), None, priority)  # type: ignore[arg-type]
        message.headers, message.correlation_id = addresses.sent_headers(ids, headers), correlation_id
        if ttl is not None:
            message.live_for(ttl)
        return state_transaction.send(agent_state, ids, [message] * len(ids))

    def _send_all(self, targets: list[Agent], messages: list[Message], single: bool) -> Awaitable[Any]:
        batch = SendBatch()
        for target, message in zip(targets, messages, strict=True):
            self._registered_state.sent += batch.add(target._registered_state, message)
        if batch.errors and all(pending.done() for _, _, pending in batch.pending_sends):
            raise batch.errors[0]
        receipts = {message.receipt.recipient: message.receipt for message in messages if message.receipt is not None}
        if not receipts and single:
            return batch.pending_sends[0][2]
        batch.result = next(iter(receipts.values())) if single else receipts or None
        return batch

    def _offer(self, target: Agent, message: Message) -> int:
        self._registered_state.sent += 1
        try:
            return int(target._registered_state.ref.tell(message, message.priority))
        except TidewireError as error:
            if getattr(target, "node_name", None) is not None:
                # The recipient has no actor on this node, so there is no dead letter.
                return 0
            reason = "stopped" if error.code == "actor_stopped" else "mailbox_full"
            self._registered_state.node._give_up(target._registered_state.ref, message, reason, str(error))
            return 0


class AgentSync(Blocking[Agent]):
    """Blocking methods of one agent, at ``agent.sync``."""

    send = blocking(Agent.send)
    share = blocking(Agent.share)
    request = blocking(Agent.request)
    stop = blocking(Agent.stop, "_stopping")
