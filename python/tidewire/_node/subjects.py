"""Methods of a node for subjects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidewire._binding import ActorRef
from tidewire._limits import SUBSCRIPTION_CAPACITY
from tidewire._node.actors import Actors
from tidewire._node.services import Services
from tidewire._trace_context import of_message, outgoing
from tidewire.errors import InvalidArgument, InvalidSubject, NoResponders
from tidewire.supervision import Mailbox, whole

if TYPE_CHECKING:
    from tidewire._binding import Pending, Subscription
    from tidewire.node import Node
    from tidewire.subscription import SubscriptionStream


class _LocalSubscription(NamedTuple):
    """A subscription that is not shared with other nodes."""

    subscription: Subscription | None
    pattern: str
    queue: str | None
    listens: bool
    mark: object


class Subjects(Actors, Services):
    """Subscriptions, publishing and requests of a node."""

    _unshared: dict[ActorRef, list[_LocalSubscription]]
    _unshared_limit: int
    _not_captured: dict[str, Sequence[str]]

    def subscribe(self, pattern: str, target: ActorRef | Callable[..., Any], queue: str | None = None) -> Subscription:
        """Deliver messages on matching subjects to an actor, or to a new actor of a handler.

        Args:
            pattern: Tokens separated by dots; ``*`` matches one token, ``>`` at the end one or
                more.
            target: An actor, or a function or coroutine function: ``def f(message)`` or ``def
                f(message, ctx)``.
            queue: Queue group: each message goes to one of its members.

        Returns:
            The subscription. Await it (``.wait()`` in a plain thread) until messages of other nodes
            are delivered, too; it raises a refusal of the hub.

        Raises:
            InvalidSubject: if the pattern is malformed.
            InvalidArgument: if the target can't handle messages.
            ActorStopped: if the actor has stopped.
        """
        return self._subscribe(pattern, target, queue, listens=False)

    def _subscribe(
        self, pattern: str, target: ActorRef | Callable[..., Any], queue: str | None, listens: bool
    ) -> Subscription:
        """Subscribe. A subscription that ``listens`` gets no requests."""
        self._check()
        _check_subscription(pattern, queue)
        self._engine.check_pattern(pattern)
        is_new_actor = not isinstance(target, ActorRef)
        actor = target if isinstance(target, ActorRef) else self.spawn(target)
        try:
            subscription = self._engine.subscribe(pattern, actor, queue, is_new_actor, listens)
        except BaseException:
            if is_new_actor:
                actor.stop(drain=False)
            raise
        self._record_subscription(subscription, actor, pattern, queue, listens)
        return subscription

    def _record_subscription(
        self, subscription: Subscription | None, actor: ActorRef, pattern: str, queue: str | None, listens: bool
    ) -> None:
        """Share a subscription with other nodes, now or once this node is joined or a hub."""
        if self._connection is not None and self._connection.is_joined:
            share, shared = self._connection.share(actor, pattern, queue, listens)
            if subscription is not None:
                subscription.share(shared)
                subscription.on_end(functools.partial(self._connection.unsubscribe, share))
            return
        with self._lock:
            if len(self._unshared) >= self._unshared_limit:
                # Subscriptions of actors that have stopped end without a notification.
                self._unshared = {actor: entry for actor, entry in self._unshared.items() if actor.alive}
                self._unshared_limit = max(64, 2 * len(self._unshared))
            entry = _LocalSubscription(subscription, pattern, queue, listens, object())
            self._unshared.setdefault(actor, []).append(entry)
        if subscription is not None:
            # The garbage collector does not see this callback: it must not refer to the
            # subscription or its node.
            subscription.on_end(functools.partial(_remove_one, self._self, actor, entry.mark))

    def _remove_unshared(self, actor: ActorRef, keep: Callable[[_LocalSubscription], bool]) -> None:
        with self._lock:
            remaining = [entry for entry in self._unshared.get(actor, ()) if keep(entry)]
            if remaining:
                self._unshared[actor] = remaining
            else:
                self._unshared.pop(actor, None)

    def _share_all(self) -> None:
        with self._lock:
            unshared, self._unshared = self._unshared, {}
        for actor, subscriptions in unshared.items():
            for entry in subscriptions if actor.alive else ():
                self._record_subscription(entry.subscription, actor, entry.pattern, entry.queue, entry.listens)

    def set_subscriptions(self, actor: ActorRef, patterns: Iterable[str]) -> list[str]:
        """Set the subscriptions of an actor to exactly these patterns, and return the active ones.
        Unchanged subscriptions are not interrupted.
        """
        before = set(self._engine.subscriptions(actor))
        after = self._record_remaining(actor, self._engine.set_subscriptions(patterns, actor))
        for pattern in set(after) - before:
            self._record_subscription(None, actor, pattern, None, False)
        return after

    def unsubscribe(self, actor: ActorRef, pattern: str) -> list[str]:
        """End the subscriptions of an actor to one pattern, and return the remaining ones."""
        return self._record_remaining(actor, self._engine.unsubscribe(pattern, actor))

    def _record_remaining(self, actor: ActorRef, patterns: list[str]) -> list[str]:
        if self._connection is not None and self._connection.is_joined:
            self._connection.keep_shared(actor, patterns)
        elif actor in self._unshared:
            self._remove_unshared(actor, lambda entry: entry.pattern in patterns)
        return patterns

    def unsubscribe_all(self, actor: ActorRef) -> int:
        """End all subscriptions of an actor, and return their number."""
        count = self._engine.unsubscribe_all(actor)
        self._record_remaining(actor, [])
        return count

    def subscriptions(self, actor: ActorRef) -> list[str]:
        """Return the patterns that an actor is subscribed to."""
        return self._engine.subscriptions(actor)

    def subscription(
        self,
        pattern: str,
        capacity: int = SUBSCRIPTION_CAPACITY.default,
        overflow: str = "wait",
        queue: str | None = None,
    ) -> SubscriptionStream:
        """Return a stream of published messages: ``async with node.subscription(...) as s: async
        for envelope in s``.

        Args:
            pattern: As for ``subscribe``.
            capacity: Most unread messages.
            overflow: Behavior for a message beyond that; "wait" and "fail" count it as refused, and
                store it as a dead letter.
            queue: As for ``subscribe``.

        Raises:
            InvalidArgument: if a value is not allowed.
            InvalidSubject: if the pattern is not a string; on entry, if it is malformed.
        """
        from tidewire.subscription import SubscriptionStream

        _check_subscription(pattern, queue)
        whole("capacity", capacity, SUBSCRIPTION_CAPACITY)
        return SubscriptionStream(self, pattern, Mailbox(capacity, overflow), queue)  # type: ignore[arg-type]

    def publish(self, subject: str, message: Any, headers: Mapping[str, str] | None = None) -> int:
        """Publish a message, and return the number of subscriptions of this node that accepted it.

        A node that has joined others publishes to them, too: at most once, in order, while the link
        is up. A message that a full mailbox refuses becomes a dead letter with the reason
        "mailbox_full".

        Raises:
            InvalidSubject: if the subject is malformed, or not a string.
            InvalidArgument: if the headers are not strings, or the message can't be sent to other
                nodes; it is not published then.
            LinkLost: if the link to the hub is lost; it is not published then.
            Unauthorized: if the token of this node does not allow it; it is not published then.
        """
        if self._stopped:
            self._check()
        headers = of_message(subject, headers)
        link = None if self._connection is None else self._connection.joined
        if link is not None:
            # First: a message that can't be sent must not be delivered here either.
            link.publish(subject, message, None, None if headers is None else _plain(headers))
        accepted, _ = self._engine.publish(subject, message, headers)
        if not accepted and self._not_captured:
            from tidewire.streams.capture import log_uncaptured

            log_uncaptured(self._as_node, subject)
        return accepted

    def request(
        self,
        subject: str,
        message: Any,
        timeout: float | EllipsisType | None = ...,
        headers: Mapping[str, str] | None = None,
    ) -> Pending:
        """Send a request to one subscriber of ``subject``; await the reply.

        Raises:
            NoResponders: if there is no subscriber.
            LinkLost: instead, while the connection to the hub or to NATS is lost.
            AskTimeout: if there is no reply within ``timeout`` seconds; the default is
                ``ask_timeout_ms`` of the configuration.
        """
        self._check()
        headers = outgoing(headers)
        try:
            return self._engine.request(subject, message, headers, timeout)
        except NoResponders:
            if self._connection is None or not self._connection.is_joined:
                raise
        seconds = self._engine.ask_timeout() if isinstance(timeout, EllipsisType) else timeout
        return self._connection.request(subject, message, seconds, headers)


def _remove_one(node: Callable[[], Node | None], actor: ActorRef, mark: object) -> None:
    found = node()
    if found is not None:
        found._remove_unshared(actor, lambda entry: entry.mark is not mark)


def _check_subscription(pattern: object, queue: object) -> None:
    if not isinstance(pattern, str):
        raise InvalidSubject(f"pattern: {pattern!r} is not allowed: give a string, tokens divided by dots")
    if queue is not None and (not isinstance(queue, str) or not queue):
        raise InvalidArgument(f"queue: {queue!r} is not allowed: give a name, or None")


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    # Only nodes with a link need the module.
    from tidewire.services.contract.names import plain_headers

    return plain_headers(headers)
