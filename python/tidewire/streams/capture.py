"""Capture: a stream stores the messages that ``node.publish`` sends on its subjects."""

from __future__ import annotations

from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tidewire._log import log
from tidewire.agents.handlers import matches
from tidewire.supervision import Mailbox

if TYPE_CHECKING:
    from tidewire._binding import Context
    from tidewire.node import Node
    from tidewire.streams.stream import Stream

_CAPACITY = 10_000
_CONCURRENCY = 1_000
"""Most messages that share one disk sync."""

_FROM_NATS = "-nats-subjects"
"""Suffix of the names of nodes that forward NATS messages, on the subjects that a URL lists."""
_HINT = (
    "%(node)s: no subscriber of this node has what was published on %(subject)r, and stream %(stream)r does not store it: "
    "publish to the stream, or make it with node.stream(%(stream)r, capture=True)"
)


async def capture(node: Node, stream: Stream) -> None:
    """Store the messages that nodes publish on the subjects of a stream, until the node stops.

    An actor of the node stores them. All nodes that capture the same stream are one queue group,
    so that each message is stored once. A message becomes a dead letter of the node if the
    mailbox is full or storing fails. A second call for the same stream does nothing. JetStream
    itself stores the messages on subjects that the URL of the node lists.

    Raises:
        NotFound: if the stream was deleted.
        Unauthorized: if the token of the node does not allow a subscription to the subjects.
    """
    subjects, name = (await stream.info()).subjects, f"capture-{stream.name}"
    if node.lookup(name) is not None:
        return

    async def store(message: Any, ctx: Context) -> None:
        assert ctx.subject is not None
        # JetStream has stored it already: a second copy would be a duplicate.
        if _is_listed(node, ctx.subject) or (ctx.origin or "").endswith(_FROM_NATS):
            return
        await stream.publish(ctx.subject, message, headers=dict(ctx.headers) if ctx.headers else None)

    actor = node.spawn(store, name=name, mailbox=Mailbox(_CAPACITY), concurrency=_CONCURRENCY)
    try:
        for subscription in [node._subscribe(subject, actor, name, listens=True) for subject in subjects]:
            await subscription
    except BaseException:
        actor.stop(drain=False)
        raise


def log_uncaptured(node: Node, subject: str) -> None:
    """Log a message that has no subscriber on this node and that no stream stores, once for each
    stream with its subject. Other nodes of a hub may have subscribers.
    """
    for name, patterns in () if _is_listed(node, subject) else list(node._not_captured.items()):
        if any(matches(pattern, subject) for pattern in patterns) and node._not_captured.pop(name, ()):
            is_alone = node._connection is None or not node._connection.is_joined
            level, fields = WARNING if is_alone else INFO, {"node": node.name, "subject": subject, "stream": name}
            log.at(level, "stream.not_captured", _HINT, **fields)


def _is_listed(node: Node, subject: str) -> bool:
    """Return whether the URL of a node lists a subject, so that NATS itself publishes it."""
    subject_lists = parse_qs(urlsplit(node.url).query).get("subjects", [])
    return any(matches(pattern, subject) for patterns in subject_lists for pattern in patterns.split(","))
