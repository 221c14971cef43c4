"""Agents, as users hold them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from time import sleep, time
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import msgspec

from tidewire._current import running_loop
from tidewire.agents.message import HAS_RECEIPT, IS_CONTEXT, KINDS, PRIORITIES, Message
from tidewire.agents.receipt import Receipt
from tidewire.agents.retry import Retry
from tidewire.errors import InvalidArgument, TidewireError

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, Pending
    from tidewire._ledger import Ledger
    from tidewire.agents.desk import Desk
    from tidewire.node import Node

_LOOK_MASK = 63


class Agent:
    """An actor that is registered: it has an id, a type and capabilities, and talks to others by them.

    ``node.agent(handler, id=...)`` makes one of a function or an object. A class of your own may derive from this one; its
    methods marked by ``@tw.handle`` are its handlers, and ``self.send`` and the like are at hand in them.

    Attributes:
        id: Its id, unique among the live agents and actors of the node.
        type: What sort of agent it is; empty if nothing was said.
        capabilities: What it can do.
    """

    id: str = ""
    type: str = ""
    capabilities: Iterable[str] = ()
    _desk_: Desk | None = None

    # What it is

    @property
    def ref(self) -> ActorRef:
        """The actor behind it."""
        return self._desk.ref

    @property
    def node(self) -> Node:
        """The node that it lives in."""
        return self._desk.node

    @property
    def status(self) -> str:
        """ "starting", "idle", "busy", "failing" (its last message failed) or "stopped"."""
        desk = self._desk
        if not desk.ref.alive:
            return "stopped"
        if not desk.started:
            return "starting"
        if desk.failed_in_row:
            return "failing"
        return "busy" if desk.ref.outstanding else "idle"

    @property
    def context(self) -> dict[str, Any]:
        """What others have shared with it, where no handler of kind "context" took it."""
        return self._desk.context

    def statistics(self) -> dict[str, Any]:
        """Return its counters and times: what it sent, and what became of what was sent to it."""
        desk = self._desk
        counted = {
            "sent": desk.sent,
            "retried": desk.retried,
            "expired": desk.expired,
            "waiting_again": desk.waiting_again,
        }
        known = {"agent": self.id, "type": self.type, "capabilities": sorted(self.capabilities), "status": self.status}
        return {**known, **desk.ref.statistics(), **counted}

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
    ) -> Awaitable[Any]:
        """Send a message; await the result, which waits for room in the mailbox. Where there is room, it is sent by the call.

        Args:
            payload: What to send.
            to: The id of an agent, or several ids.
            type: Or the type of one: of several, the one with the least outstanding work.
            capability: Or what it has to be able to do.
            kind: What sort of message it is.
            priority: "urgent", "high", "normal" or "low".
            ttl: For how many seconds it may be handled.
            headers: Whatever belongs to it besides the payload.
            retry: How often it is tried again if its handler fails; the default is the recipient's.
            receipt: Whether awaiting gives a ``tw.Receipt`` (of several recipients: a dict of them), rather than None.
            correlation_id: The id of the message that it belongs to.

        Raises:
            NoSuchTarget: if nobody fits; nothing is sent then.
            MailboxFull: if a mailbox is full and its policy is to fail; the other recipients get theirs.
            ActorStopped: if the recipient is stopping.
            InvalidArgument: if an argument is not allowed.
        """
        desk = self._desk_ or self._desk
        # The usual message: to one agent by its id, with nothing special. Nothing in here is done twice for any other.
        target = desk.desks.get(to) if to.__class__ is str else None
        if (
            target is not None
            and kind == "event"
            and type is None
            and capability is None
            and ttl is None
            and headers is None
            and retry is None
            and correlation_id is None
            and not receipt
        ):
            desk.sent = sent = desk.sent + 1
            if not sent & _LOOK_MASK:
                target.look_at_queue()
            message = Message(payload, "event", desk.id, time(), target.recipients, None, priority)  # type: ignore[arg-type]
            return target.ref.send(message, priority)
        targets = self._targets(to, type, capability)
        messages = self._messages(targets, payload, kind, priority, ttl, headers, retry, receipt, correlation_id)
        return self._send_all(targets, messages, single=not _is_many(to))

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
        """As ``send``, without ever waiting: a full mailbox is an error at once, whatever its policy."""
        desk = self._desk_ or self._desk
        target = desk.desks.get(to) if to.__class__ is str else None
        if (
            target is not None
            and kind == "event"
            and type is None
            and capability is None
            and ttl is None
            and headers is None
            and retry is None
            and correlation_id is None
        ):
            desk.sent = sent = desk.sent + 1
            if not sent & _LOOK_MASK:
                target.look_at_queue()
            message = Message(payload, "event", desk.id, time(), target.recipients, None, priority)  # type: ignore[arg-type]
            target.ref.tell(message, priority)
            return
        targets = self._targets(to, type, capability)
        messages = self._messages(targets, payload, kind, priority, ttl, headers, retry, False, correlation_id)
        errors: list[TidewireError] = []
        for one, message in zip(targets, messages, strict=True):
            try:
                one._desk.ref.tell(message, message.priority)
                desk.sent += 1
            except TidewireError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def publish(self, topic: str, payload: Any, headers: Mapping[str, str] | None = None) -> int:
        """Publish on a topic. Subscribers that are not agents receive the payload as it is.

        Returns:
            How many subscriptions accepted it.
        """
        desk = self._desk
        accepted = desk.node.publish(topic, payload, headers={**_headers(headers), "tw-sender": desk.id})
        desk.sent += 1
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
        """Send to all agents, or to all of a type or with a capability, but not to oneself. It never waits.

        A recipient that is full or has just stopped does not affect the others: its message becomes a dead letter.

        Returns:
            How many accepted it.
        """
        everybody = self._desk.directory.list(type=type, capability=capability)
        targets = [agent for agent in everybody if include_self or agent is not self]
        messages = self._messages(targets, payload, "broadcast", priority, ttl, headers, retry, False, None)
        return sum(self._offer(target, message) for target, message in zip(targets, messages, strict=True))

    def share(self, context: Any, to: str | Iterable[str] | None = None, **options: Any) -> Awaitable[Any]:
        """Hand shared state to other agents: a message of kind "context". Options as for ``send``.

        A mapping is copied, so that what is changed afterwards is not shared. Recipients without a handler for it keep it
        in their ``context``.
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
        """Ask another agent; awaiting gives what its handler returns, whatever that is. Cancelling leaves nothing behind.

        Args:
            payload: What to send.
            to: The id of the agent.
            timeout: Seconds until AskTimeout; a request that was not begun by then is not handled. The default is the
                configuration's ``ask_timeout_ms``.
            type: Or the type of one: of several, the one with the least outstanding work.
            capability: Or what it has to be able to do.
            priority: "urgent", "high", "normal" or "low".
            headers: Whatever belongs to it besides the payload.
            retry: Ask again if the handler fails, so often and after these waits, within ``timeout`` for each.
            correlation_id: The id of the message that it belongs to.

        Raises:
            NoSuchTarget: if nobody fits.
            AskTimeout: if no reply came in time.
            AskCycle: if agents would wait for each other in a ring.
            BaseException: whatever the handler raised.
        """
        desk = self._desk
        if to.__class__ is str and type is None and capability is None:
            target = desk.desks.get(to) or desk.directory.find(to)._desk
        else:
            if to is not None and not isinstance(to, str):
                raise InvalidArgument(
                    f"to: {to!r} is not allowed: a request goes to one agent; gather several requests"
                )
            target = self._targets(to, type, capability)[0]._desk
        _check("request", priority, None, retry, correlation_id)
        message = Message(payload, "request", desk.id, time(), target.recipients, None, priority)  # type: ignore[arg-type]
        if headers or correlation_id:
            message.headers, message.correlation_id = _headers(headers), correlation_id
        message.reply_to = desk.id
        again = target.retry if retry is None else retry
        asked = target.ref.ask(message, timeout, priority)
        desk.sent += 1
        return _Asked(asked, target, message, timeout, again) if again.limit else asked

    def respond(self, message: Message, value: Any) -> bool:
        """Answer a request before its handler returns; see ``Message.respond``."""
        if not isinstance(message, Message):
            raise InvalidArgument(
                f"message: {message!r} is not a tw.Message: take it as the handler's second parameter"
            )
        return message.respond(value)

    # Topics

    def subscribe(self, topic: str, queue: str | None = None) -> list[str]:
        """Receive what is published on a topic, which may hold wildcards. Return all topics now subscribed to.

        Raises:
            InvalidArgument: if it is subscribed to the topic with another queue.
            InvalidSubject: if the topic is malformed.
        """
        desk = self._desk
        if not isinstance(topic, str):
            raise InvalidArgument(f"topic: {topic!r} is not allowed: give a subject, such as 'orders.*'")
        if topic not in desk.subscriptions:
            desk.subscriptions[topic] = desk.node.subscribe(topic, desk.ref, queue)
            desk.queues[topic] = queue
        elif desk.queues.get(topic) != queue:
            raise InvalidArgument(
                f"queue: {queue!r} is not allowed: {self!r} is subscribed to {topic!r} with queue={desk.queues.get(topic)!r} "
                "already: unsubscribe it first"
            )
        return list(desk.subscriptions)

    def unsubscribe(self, topic: str) -> list[str]:
        """End the subscription to a topic. Return all topics still subscribed to."""
        subscription = self._desk.subscriptions.pop(topic, None)
        self._desk.queues.pop(topic, None)
        if subscription is not None:
            subscription.unsubscribe()
        return list(self._desk.subscriptions)

    # Its end

    async def stop(self, drain: bool = True, timeout: float | EllipsisType | None = ...) -> Ledger:
        """Stop it, as ``ActorRef.stop`` does. What waits to be tried again is given up."""
        ledger: Ledger = await self._desk.ref.stop(drain, timeout)
        self._desk.close()
        return ledger

    @property
    def sync(self) -> AgentSync:
        """Blocking forms of what is otherwise awaited, for plain threads and plain handlers."""
        return AgentSync(self)

    def __repr__(self) -> str:
        if self._desk_ is None:
            return f"<{self.__class__.__name__}, not registered>"
        kind = f" {self.type!r}" if self.type else ""
        return f"<{self.__class__.__name__} {self.id!r}{kind}, {self.status}>"

    # Inside

    @property
    def _desk(self) -> Desk:
        if self._desk_ is None:
            raise InvalidArgument(f"{self!r} is not registered: give it to node.agent(...) first")
        return self._desk_

    def _targets(self, to: Any, type: str | None, capability: str | None) -> list[Agent]:
        directory = self._desk.directory
        if to is not None and (type is not None or capability is not None):
            raise InvalidArgument(f"to: {to!r} is not allowed beside type= or capability=: give one or the other")
        for field, value in (("type", type), ("capability", capability)):
            if value is not None and not isinstance(value, str):
                raise InvalidArgument(f"{field}: {value!r} is not allowed: give a string")
        if to is None and type is None and capability is None:
            raise InvalidArgument("to: nobody is named: give to=, type= or capability=")
        if to is None:
            return [directory.choose(type, capability)]
        ids = [to] if isinstance(to, str) else list(to) if _is_many(to) else [to]
        wrong = next((one for one in ids if not isinstance(one, str)), None)
        if wrong is not None or not ids:
            raise InvalidArgument(f"to: {to!r} is not allowed: give the id of an agent, or several ids")
        return [directory.find(one) for one in dict.fromkeys(ids)]

    def _messages(
        self,
        targets: list[Agent],
        payload: Any,
        kind: str,
        priority: str,
        ttl: float | None,
        headers: Mapping[str, str] | None,
        retry: Retry | None,
        receipt: bool,
        correlation_id: str | None,
    ) -> list[Message]:
        _check(kind, priority, ttl, retry, correlation_id)
        recipients = tuple(target.id for target in targets)
        made: list[Message] = []
        for target in targets:
            message = Message(payload, kind, self._desk.id, time(), recipients, None, priority)  # type: ignore[arg-type]
            message.headers, message.retry, message.correlation_id = _headers(headers), retry, correlation_id
            if made:
                message.given_id = made[0].id
            if ttl is not None:
                message.live_for(ttl)
            if kind == "context":
                message.flags |= IS_CONTEXT
            if receipt:
                message.flags |= HAS_RECEIPT
                message.receipt = Receipt(target.id, target._desk.look)
            made.append(message)
        return made

    def _send_all(self, targets: list[Agent], messages: list[Message], single: bool) -> Awaitable[Any]:
        begun = _Sends()
        for target, message in zip(targets, messages, strict=True):
            self._desk.sent += begun.add(target._desk, message)
        if begun.errors and begun.all_done:
            raise begun.errors[0]
        receipts = {message.receipt.recipient: message.receipt for message in messages if message.receipt is not None}
        if not receipts and single:
            return begun.under_way[0][2]
        begun.result = next(iter(receipts.values())) if single else receipts or None
        return begun

    def _offer(self, target: Agent, message: Message) -> int:
        self._desk.sent += 1
        try:
            return int(target._desk.ref.tell(message, message.priority))
        except TidewireError as error:
            if getattr(target, "node_name", None) is not None:
                # There is no actor here whose dead letter it could be.
                return 0
            reason = "stopped" if error.code == "actor_stopped" else "mailbox_full"
            self._desk.node._give_up(target._desk.ref, message, reason, str(error))
            return 0


class AgentSync:
    """Blocking calls of one agent, at ``agent.sync``. Not for the thread of an event loop."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def send(self, payload: Any, to: Any = None, **options: Any) -> Any:
        """Send a message, and block while the mailbox is full. Options and errors as for ``Agent.send``."""
        return _block(lambda: self._agent.send(payload, to, **options))

    def share(self, context: Any, to: Any = None, **options: Any) -> Any:
        """Hand shared state to others, and block while a mailbox is full. Options and errors as for ``Agent.share``."""
        return _block(lambda: self._agent.share(context, to, **options))

    def request(self, payload: Any, to: Any = None, **options: Any) -> Any:
        """Ask another agent, and block until it replies. Options and errors as for ``Agent.request``."""
        return _block(lambda: self._agent.request(payload, to, **options))

    def stop(self, drain: bool = True, timeout: float | EllipsisType | None = ...) -> Any:
        """Stop it, and block until it has stopped or the time is up."""
        desk = self._agent._desk
        ledger = _block(lambda: desk.ref.stop(drain, timeout))
        desk.close()
        return ledger


class _Sends:
    """Several sends; awaiting waits for all of them. One that fails does not affect the others; its error is raised at the end."""

    def __init__(self) -> None:
        self.under_way: list[tuple[Desk, Message, Pending]] = []
        self.errors: list[TidewireError] = []
        self.result: Any = None

    def add(self, desk: Desk, message: Message) -> bool:
        """Begin to send to one recipient. Answers whether it was not refused at once."""
        if message.receipt is not None:
            message.receipt.mark("accepted")
            desk.receipts.add(message.receipt)
        try:
            pending = desk.ref.send(message, message.priority)
        except TidewireError as error:
            self._refused(desk, message, error)
            return False
        self.under_way.append((desk, message, pending))
        if pending.done():
            _note(desk, message, pending.result())
        return True

    @property
    def all_done(self) -> bool:
        return all(pending.done() for _, _, pending in self.under_way)

    def __await__(self) -> Generator[Any, None, Any]:
        for at, (desk, message, pending) in enumerate(self.under_way):
            try:
                _note(desk, message, (yield from pending.__await__()))
            except TidewireError as error:
                self._refused(desk, message, error)
            except BaseException:
                self._break_off(at)
                raise
        return self._end()

    def wait(self) -> Any:
        for at, (desk, message, pending) in enumerate(self.under_way):
            try:
                _note(desk, message, pending.wait())
            except TidewireError as error:
                self._refused(desk, message, error)
            except BaseException:
                self._break_off(at)
                raise
        return self._end()

    def _refused(self, desk: Desk, message: Message, error: TidewireError) -> None:
        self.errors.append(error)
        desk.failed(message, error)

    def _break_off(self, at: int) -> None:
        """What still waits for room when the wait is cancelled is not sent."""
        for desk, message, pending in self.under_way[at:]:
            if pending.cancel() or pending.cancelled():
                desk.failed(message)

    def _end(self) -> Any:
        if self.errors:
            raise self.errors[0]
        return self.result


def _note(desk: Desk, message: Message, accepted: Any) -> None:
    """A mailbox that drops the new message answers False."""
    if accepted is False:
        desk.failed(message)


class _Asked:
    """A request that is asked again after failures that may pass."""

    def __init__(self, asked: Pending, target: Desk, message: Message, timeout: Any, retry: Retry) -> None:
        self._asked = asked
        self._target = target
        self._message = message
        self._timeout = timeout
        self._retry = retry

    def __await__(self) -> Generator[Any, None, Any]:
        while True:
            try:
                return (yield from self._asked.__await__())
            except Exception as error:
                if self._is_last(error):
                    raise
            yield from asyncio.sleep(self._retry.wait_s(self._message.delivery)).__await__()
            self._ask()

    def wait(self) -> Any:
        while True:
            try:
                return self._asked.wait()
            except Exception as error:
                if self._is_last(error):
                    raise
            sleep(self._retry.wait_s(self._message.delivery))
            self._ask()

    def _is_last(self, error: Exception) -> bool:
        passes = not isinstance(error, TidewireError) or error.retryable
        return not passes or self._message.delivery > self._retry.limit

    def _ask(self) -> None:
        """Ask with a copy: the handler of the attempt before may still be at work on the message."""
        before = self._message
        message = msgspec.structs.replace(before, delivery=before.delivery + 1, context=None, given_id=before.id)
        self._target.retried += 1
        self._message, self._asked = message, self._target.ref.ask(message, self._timeout, message.priority)


def _block(call: Callable[[], Any]) -> Any:
    if running_loop() is not None:
        raise InvalidArgument("agent.sync would block this thread's event loop: await the same call without .sync")
    return call().wait()


def _is_many(to: Any) -> bool:
    return isinstance(to, Iterable) and not isinstance(to, (str, bytes))


def _check(kind: Any, priority: Any, ttl: Any, retry: Any, correlation_id: Any) -> None:
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidArgument(f"kind: {kind!r} is not allowed: use one of {', '.join(sorted(KINDS))}")
    if not isinstance(priority, str) or priority not in PRIORITIES:
        raise InvalidArgument(f"priority: {priority!r} is not allowed: use 'urgent', 'high', 'normal' or 'low'")
    if ttl is not None and not _is_time(ttl):
        raise InvalidArgument(f"ttl: {ttl!r} is not allowed: give a number of seconds, 0 or more, or None for ever")
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidArgument(f"retry: {retry!r} is not allowed: give a tw.Retry, or None for the recipient's")
    if correlation_id is not None and not isinstance(correlation_id, str):
        raise InvalidArgument(f"correlation_id: {correlation_id!r} is not allowed: give the id of a message, or None")


def _is_time(ttl: Any) -> bool:
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)):
        return False
    return 0 <= ttl <= sys.float_info.max or ttl == float("inf")


def _headers(headers: Any) -> Mapping[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping) or not all(isinstance(part, str) for item in headers.items() for part in item):
        raise InvalidArgument(f"headers: {headers!r} is not allowed: give a mapping of strings to strings")
    return dict(headers)
