"""The settings of links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidewire import _limits
from tidewire._numbers import Numbers
from tidewire.errors import ConfigError


@dataclass(frozen=True)
class LinkConfig(Numbers):
    """How the links of a node work. ``docs/reference/limits.md`` has the units and ranges.

    It is the table ``links`` of a node's configuration: ``tw.Node(config={"links":
    {"link_heartbeat_ms": 1000}})``, the table ``[links]`` of a TOML file, or
    ``TIDEWIRE_LINKS__LINK_HEARTBEAT_MS=1000`` in the environment. ``node.links`` has the present
    values. Both sides of a link exchange their settings when a node joins. Each keeps to the
    other's heartbeat, to its longest frame and payload, and to the exchanges that it allows.

    Args:
        link_heartbeat_ms: A link is alive if something is heard within twice this time.
        link_greeting_ms: How long a new link may take to say who it is.
        link_hello_bytes: Bytes that a connection may send before it has joined.
        link_greetings: Connections to this node that have not joined yet.
        link_backoff_ms: Wait before the first attempt to join a lost hub again; it doubles.
        link_backoff_max_ms: Longest wait between two attempts.
        link_queue_bytes: Bytes that wait to be written to one link.
        link_frame_bytes: Longest frame that this side takes.
        link_chunk_bytes: Longest payload that is sent in one frame.
        payload_bytes: Longest payload of one message.
        link_compress_bytes: Payloads from this length on are compressed on the way to another host;
            0: none.
        link_compress_near_bytes: The same within this host, and to a hub of this process; 0: none.
        link_shared_bytes: Shared memory in which payloads lie that other processes of this machine
            read; 0: none.
        link_batch_bytes: Bytes that gather before they are written; about so many are given to a
            socket in one write.
        link_batch_frames: Frames that gather in one round of the event loop before they are
            written.
        link_in_flight: Calls, streams, subscriptions and long messages that the other side may have
            open.
        link_subscriptions: Subscriptions of one node that joined this one.
        link_resends: How often a call of an idempotent method is made again after its link was
            lost.
        hub_links: Nodes that join this one.
        hub_queue_bytes: Bytes that wait to be written to all nodes that joined this one.
        hub_heartbeat_ms: Shortest heartbeat of a node that is told by itself that this one is
            there.
        hub_name_ms: How long the name of a node whose link was lost is kept for it and for others
            of its token.
        link_said_bytes: Size of the announcements of one joined node: its services and agents.
        stream_credit: Items of a stream that are under way to this node before it has asked for
            more.
        remote_objects: Functions and objects that the node has given to others, and that it holds
            of others.
        remote_lease_ms: How long a function or object that was given lives without being used,
            unless ``tw.remote`` says otherwise.

    Raises:
        ConfigError: if values are not allowed; it names all of them at once.
    """

    link_heartbeat_ms: int = _limits.LINK_HEARTBEAT_MS.default
    link_greeting_ms: int = _limits.LINK_GREETING_MS.default
    link_hello_bytes: int = _limits.LINK_HELLO_BYTES.default
    link_greetings: int = _limits.LINK_GREETINGS.default
    link_backoff_ms: int = _limits.LINK_BACKOFF_MS.default
    link_backoff_max_ms: int = _limits.LINK_BACKOFF_MAX_MS.default
    link_queue_bytes: int = _limits.LINK_QUEUE_BYTES.default
    link_frame_bytes: int = _limits.LINK_FRAME_BYTES.default
    link_chunk_bytes: int = _limits.LINK_CHUNK_BYTES.default
    payload_bytes: int = _limits.PAYLOAD_BYTES.default
    link_compress_bytes: int = _limits.LINK_COMPRESS_BYTES.default
    link_compress_near_bytes: int = _limits.LINK_COMPRESS_NEAR_BYTES.default
    link_shared_bytes: int = _limits.LINK_SHARED_BYTES.default
    link_batch_bytes: int = _limits.LINK_BATCH_BYTES.default
    link_batch_frames: int = _limits.LINK_BATCH_FRAMES.default
    link_in_flight: int = _limits.LINK_IN_FLIGHT.default
    link_subscriptions: int = _limits.LINK_SUBSCRIPTIONS.default
    link_resends: int = _limits.LINK_RESENDS.default
    hub_links: int = _limits.HUB_LINKS.default
    hub_queue_bytes: int = _limits.HUB_QUEUE_BYTES.default
    hub_heartbeat_ms: int = _limits.HUB_HEARTBEAT_MS.default
    hub_name_ms: int = _limits.HUB_NAME_MS.default
    link_said_bytes: int = _limits.LINK_SAID_BYTES.default
    stream_credit: int = _limits.STREAM_CREDIT.default
    remote_objects: int = _limits.REMOTE_OBJECTS.default
    remote_lease_ms: int = _limits.REMOTE_LEASE_MS.default

    _table: ClassVar[str] = "links"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link_backoff_ms > self.link_backoff_max_ms:
            problem = (
                f"links.link_backoff_ms: {self.link_backoff_ms} is above link_backoff_max_ms={self.link_backoff_max_ms}: "
                "lower it, or raise the other"
            )
            raise ConfigError(f"configuration: {problem}", problems=[problem])
