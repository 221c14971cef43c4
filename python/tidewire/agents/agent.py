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

_LOOK_MASK = 63


class Agent:
    """An actor that is registered: it has an id, a type and capabilities, and talks to others by
    them.

    ``node.agent(handler, id=...)`` makes one of a function or an object. A class of your own may
    derive from this one; its methods marked by ``@tw.handle`` are its handlers, and ``self.send``
    and the like are at hand in them.

    Attributes:
        id: Its id, unique among the live agents and actors of the node.
        type: Type of the agent; empty if it has none.
        capabilities: Its capabilities.
    """

    id: str = ""
    type: str = ""
    capabilities: Iterable[str] = ()
    _agent_state_: AgentState | None = None

    # Identity

    @property
    def ref(self) -> ActorRef:
        """The actor behind it."""
        return self._registered_state.ref

    @property
    def node(self) -> Node:
        """The node that it lives in."""
        return self._registered_state.node

    @property
    def _is_lost(self) -> bool:
        """True if the state of the agent is unknown at present."""
        return False

    @property
    def status(self) -> str:
        """ "starting", "idle", "busy", "failing" (its last message failed) or "stopped"; of a
        durable agent that another process has, "standby".
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
        """Values that others have shared with it, where no handler of kind "context" took them."""
        return self._registered_state.context

    def statistics(self) -> dict[str, Any]:
        """Return its counters and times: its messages, and the outcomes of messages to it."""
        agent_state = self._registered_state
        counted = {
            "sent": agent_state.sent,
            "retried": agent_state.retried,
            "expired": agent_state.expired,
            "waiting_again": agent_state.waiting_again,
        }
        known = {"agent": self.id, "type": self.type, "capabilities": sorted(self.capabilities), "status": self.status}
        return {**known, **agent_state.ref.statistics(), **counted}

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
        """Send a message; await the result, which waits for room in the mailbox. Where there is
        room, it is sent by the call.

        Args:
            payload: The payload.
            to: The id of an agent, or several ids.
            type: Or the type of one: of several, the one with the least outstanding work.
            capability: Or what it has to be able to do.
            kind: Kind of the message.
            priority: "urgent", "high", "normal" or "low".
            ttl: For how many seconds it may be handled.
            headers: Further data of the message besides the payload.
            retry: How often it is tried again if its handler fails; the default is the recipient's.
            receipt: True if awaiting gives a ``tw.Receipt`` (of several recipients: a dict of
                them), rather than None.
            correlation_id: The id of the message that it belongs to.
            durable: True if it survives processes: it is stored in the inboxes of the ids in
                ``to``, whether these agents run or not, and is handled by agents that were
                registered with ``durable=``, with their retries. Awaiting waits until it is stored.
                In a handler of an agent with ``durable="state"`` it is stored together with the
                state, once the handler has returned.

        Raises:
            NoSuchTarget: if nobody fits; nothing is sent then.
            MailboxFull: if a mailbox is full and its policy is to fail; the other recipients get
                theirs.
            ActorStopped: if the recipient is stopping.
            InvalidArgument: if an argument is not allowed.
        """
        agent_state = self._agent_state_ or self._registered_state
        if durable:
            ids = addresses.durable_ids(to, type, capability, retry, receipt)
            return self._send_durably(ids, payload, kind, priority, ttl, headers, correlation_id)
        # The usual message: to one agent by its id, with nothing special. Nothing in here is done
        # twice for any other.
        target = agent_state.agent_states.get(to) if to.__class__ is str else None
        is_plain = type is None and capability is None and ttl is None and headers is None and retry is None
        if is_plain and target is not None and kind == "event" and correlation_id is None and not receipt:
            message = Message(payload, "event", agent_state.id, time(), target.recipients, None, priority)  # type: ignore[arg-type]
            sending = target.ref.send(message, priority)
            agent_state.sent = sent = agent_state.sent + 1
            if not sent & _LOOK_MASK:
                target.look_at_queue()
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
        """As ``send``, without ever waiting: a full mailbox is an error at once, whatever its
        policy.
        """
        agent_state = self._agent_state_ or self._registered_state
        target = agent_state.agent_states.get(to) if to.__class__ is str else None
        is_plain = type is None and capability is None and ttl is None and headers is None and retry is None
        if is_plain and target is not None and kind == "event" and correlation_id is None:
            message = Message(payload, "event", agent_state.id, time(), target.recipients, None, priority)  # type: ignore[arg-type]
            target.ref.tell(message, priority)
            agent_state.sent = sent = agent_state.sent + 1
            if not sent & _LOOK_MASK:
                target.look_at_queue()
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
        """Publish on a topic. Subscribers that are not agents receive the payload as it is.

        Returns:
            How many subscriptions accepted it.
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
        """Send to all agents, or to all of a type or with a capability, but not to oneself. It
        never waits.

        A recipient that is full or has just stopped does not affect the others: its message becomes
        a dead letter.

        Returns:
            How many accepted it.
        """
        agent_state = self._registered_state
        everybody = agent_state.directory.list(type=type, capability=capability)
        targets = [agent for agent in everybody if include_self or agent is not self]
        messages = addresses.messages(
            agent_state, targets, payload, "broadcast", priority, ttl, headers, retry, False, None
        )
        return sum(self._offer(target, message) for target, message in zip(targets, messages, strict=True))

    def share(self, /, context: Any, to: str | Iterable[str] | None = None, **options: Any) -> Awaitable[Any]:
        """Hand shared state to other agents: a message of kind "context". Options as for ``send``.

        A mapping is copied, so that what is changed afterwards is not shared. Recipients without a
        handler for it keep it in their ``context``.
        """
        handed = dict(context) if isinstance(context, Mapping) else context
        return self.send(handed, to, kind="context", **options)

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
        """Ask another agent; awaiting gives what its handler returns, whatever that is. Cancelling
        leaves nothing behind.

        Args:
            payload: The payload.
            to: The id of the agent.
            timeout: Seconds until AskTimeout; a request that was not begun by then is not handled.
                The default is the configuration's ``ask_timeout_ms``.
            type: Or the type of one: of several, the one with the least outstanding work.
            capability: Or what it has to be able to do.
            priority: "urgent", "high", "normal" or "low".
            headers: Further data of the message besides the payload.
            retry: Ask again if the handler fails, so often and after these waits, within
                ``timeout`` for each.
            correlation_id: The id of the message that it belongs to.

        Raises:
            NoSuchTarget: if nobody fits.
            AskTimeout: if no reply came in time.
            AskCycle: if agents would wait for each other in a ring.
            BaseException: whatever the handler raised.
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
        again = target.retry if retry is None else retry
        try:
            pending = target.ref.ask(message, timeout, priority)
        except TidewireError as error:
            if not (again.limit and error.retryable):
                raise
            pending = None
        agent_state.sent += 1
        if pending is not None and not again.limit:
            return pending
        return RetryingRequest(agent_state.engine, pending, target, message, timeout, again)

    def respond(self, message: Message, value: Any) -> bool:
        """Answer a request before its handler returns; see ``Message.respond``."""
        if not isinstance(message, Message):
            raise InvalidArgument(
                f"message: {message!r} is not a tw.Message: take it as the handler's second parameter"
            )
        return message.respond(value)

    # Topics

    def subscribe(self, topic: str, queue: str | None = None) -> list[str]:
        """Receive what is published on a topic, which may hold wildcards. Return all topics now
        subscribed to.

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
        """End the subscription to a topic. Return all topics still subscribed to."""
        subscription = self._registered_state.subscriptions.pop(topic, None)
        self._registered_state.queues.pop(topic, None)
        if subscription is not None:
            subscription.unsubscribe()
        return list(self._registered_state.subscriptions)

    # Its end

    async def active(self, timeout: float | None = None) -> int:
        """Wait until this process has the agent, which is durable, and return its fence: greater
        than that of every process before.

        Args:
            timeout: Seconds after which TimeoutError is raised; None for no limit.

        Raises:
            InvalidArgument: if it is not durable.
        """
        durable = self._registered_state.durable
        if durable is None:
            raise InvalidArgument(f"{self!r} is not durable: register it with durable=")
        return await durable.active(timeout)

    async def stop(self, drain: bool = True, timeout: float | EllipsisType | None = ...) -> Ledger:
        """Stop it, as ``ActorRef.stop`` does. Pending retries are given up; durable messages stay
        in the inbox.
        """
        return await steps.awaited(self._stopping(drain, timeout))

    def _stopping(self, drain: bool = True, timeout: float | EllipsisType | None = ...) -> Steps[Ledger]:
        if self._registered_state.durable is not None:
            yield self._registered_state.durable.ended_on_loop()
        ledger: Ledger = yield self._registered_state.ref.stop(drain, timeout)
        self._registered_state.close()
        return ledger

    @property
    def sync(self) -> AgentSync:
        """Blocking forms of what is otherwise awaited, for plain threads and plain handlers."""
        return AgentSync(self, self._registered_state.node)

    def __repr__(self) -> str:
        if self._agent_state_ is None:
            return f"<{self.__class__.__name__}, not registered>"
        kind = f" {self.type!r}" if self.type else ""
        return f"<{self.__class__.__name__} {self.id!r}{kind}, {self.status}>"

    # Inside

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
        made = Message(payload, kind, agent_state.id, time(), tuple(ids), None, priority)  # type: ignore[arg-type]
        made.headers, made.correlation_id = addresses.sent_headers(ids, headers), correlation_id
        if ttl is not None:
            made.live_for(ttl)
        return state_transaction.send(agent_state, ids, [made] * len(ids))

    def _send_all(self, targets: list[Agent], messages: list[Message], single: bool) -> Awaitable[Any]:
        begun = SendBatch()
        for target, message in zip(targets, messages, strict=True):
            self._registered_state.sent += begun.add(target._registered_state, message)
        if begun.errors and all(pending.done() for _, _, pending in begun.pending_sends):
            raise begun.errors[0]
        receipts = {message.receipt.recipient: message.receipt for message in messages if message.receipt is not None}
        if not receipts and single:
            return begun.pending_sends[0][2]
        begun.result = next(iter(receipts.values())) if single else receipts or None
        return begun

    def _offer(self, target: Agent, message: Message) -> int:
        self._registered_state.sent += 1
        try:
            return int(target._registered_state.ref.tell(message, message.priority))
        except TidewireError as error:
            if getattr(target, "node_name", None) is not None:
                # There is no actor here whose dead letter it could be.
                return 0
            reason = "stopped" if error.code == "actor_stopped" else "mailbox_full"
            self._registered_state.node._give_up(target._registered_state.ref, message, reason, str(error))
            return 0


class AgentSync(Blocking[Agent]):
    """Blocking calls of one agent, at ``agent.sync``."""

    send = blocking(Agent.send)
    share = blocking(Agent.share)
    request = blocking(Agent.request)
    stop = blocking(Agent.stop, "_stopping")
