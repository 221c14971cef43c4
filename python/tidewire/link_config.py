"""The settings of links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidewire import _limits
from tidewire._numbers import Numbers
from tidewire.errors import ConfigError


@dataclass(frozen=True)
class LinkConfig(Numbers):
    """Settings of the links of a node. ``docs/reference/limits.md`` has the units and ranges.

    It is the table ``links`` of a node's configuration: ``tw.Node(config={"links":
    {"link_heartbeat_ms": 1000}})``, the table ``[links]`` of a TOML file, or
    ``TIDEWIRE_LINKS__LINK_HEARTBEAT_MS=1000`` in the environment. ``node.links`` has the effective
    settings. Both sides of a link exchange their settings at the join. Each side respects the
    heartbeat, the frame, payload and exchange limits of the other.

    Args:
        link_heartbeat_ms: Heartbeat interval. A link without traffic for twice this time is lost.
        link_greeting_ms: Timeout of the handshake of a new link.
        link_hello_bytes: Most bytes that a connection may send before it has joined.
        link_greetings: Most connections to this node that have not joined yet.
        link_backoff_ms: Delay before the first attempt to rejoin a lost hub; it doubles with each
            one.
        link_backoff_max_ms: Longest delay between two attempts.
        link_queue_bytes: Most bytes that are queued for one link.
        link_frame_bytes: Longest frame that this side accepts.
        link_chunk_bytes: Longest payload in one frame.
        payload_bytes: Longest payload of one message.
        link_compress_bytes: Length from which payloads to another host are compressed; 0: none.
        link_compress_near_bytes: The same within this host, and to a hub of this process; 0: none.
        link_shared_bytes: Shared memory for payloads to other processes of this machine; 0: none.
        link_batch_bytes: Bytes that are collected for one write to a socket, approximately.
        link_batch_frames: Frames that are collected in one round of the event loop before they are
            written.
        link_in_flight: Most calls, streams, subscriptions and long messages that the other side may
            have open.
        link_subscriptions: Most subscriptions of one node that has joined this one.
        link_resends: Most retries of a call of an idempotent method after lost links.
        hub_links: Most nodes that join this one.
        hub_queue_bytes: Most bytes that are queued for all nodes that have joined this one.
        hub_heartbeat_ms: Shortest heartbeat interval of a node that this hub sends its own
            heartbeats to.
        hub_name_ms: Time for which the name of a lost node is reserved for nodes with its token.
        link_said_bytes: Size of the announcements of one joined node: its services and agents.
        stream_credit: Credit of a stream: items in transit to this node before it grants more.
        remote_objects: Most functions and objects that the node exports, and most that it imports.
        remote_lease_ms: Lease of an unused exported function or object, unless ``tw.remote`` sets
            another.

    Raises:
        ConfigError: if values are not allowed; the error lists all of them.
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
