"""Announcements of services and agents by the hub: their format and their reader."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tidewire._limits import LINK_ANNOUNCEMENT_BYTES
from tidewire._log import log
from tidewire.errors import LimitExceeded, WireError
from tidewire.services.contract.info import ServiceInfo
from tidewire.services.contract.names import short

FIELD = "service"
"""Field with the description of a service."""
AGENT = "agent"
"""Field with the description of an agent."""
_FIELD_BYTES_MAX = 60_000


class Announcement(NamedTuple):
    """One subscription as the hub announces it.

    Attributes:
        node: The name of the node that subscribed.
        pattern: Its pattern.
        kind: Kind of the subscription: ``"service"``, ``"agent"``, or ``"wrong"`` if its
            description can't be read.
        text: Its description, or the error in it.
    """

    node: str
    pattern: str
    kind: str
    text: str


@dataclass(frozen=True)
class NodeInfo:
    """A node that has joined a hub, or the hub itself.

    Attributes:
        name: Its name.
        user: User of its token; empty where there are no tokens.
        subscriptions: Its subscriptions: services, agents, subjects, and announcements of the
            hub.
        open_calls: Calls of others that it has not answered yet.
        joined_s: Seconds since it joined.
    """

    name: str
    user: str
    subscriptions: int
    open_calls: int
    joined_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return its fields as plain values."""
        return asdict(self)


def nodes(listed: bytes) -> Iterator[NodeInfo]:
    """Read the hub's list of nodes, whose form is in section 6 of ``spec/wire.md``.

    Raises:
        WireError: if the list is malformed.
    """
    at = 0
    try:
        while at < len(listed):
            name, at = _text(listed, at, "<H")
            user, at = _text(listed, at, "<H")
            subscriptions, open_calls, joined_ms = struct.unpack_from("<IIQ", listed, at)
            at += 16
            yield NodeInfo(name, user, subscriptions, open_calls, joined_ms / 1_000)
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"the hub's list of nodes is not of the form that this version knows: {error}") from error


def described(info: ServiceInfo) -> dict[str, str]:
    """Return the announcement of an instance: without the schemas of its commands, or without all
    schemas and events, if it would be too long with them.

    Raises:
        LimitExceeded: if it is too long without them.
    """
    fields = info.to_dict()
    text = json.dumps(fields, separators=(",", ":"))
    for kind in ("commands", "methods"):
        if len(text.encode()) > _FIELD_BYTES_MAX and (fields[kind] or kind == "methods"):
            text = "service %(service)r: the schemas of its %(kind)s are too long to be listed: left out"
            log.warning("service.schemas_left_out", text, service=info.name, kind=kind)
            shown = [{**one, "parameters": {}, "result": {}} for one in fields[kind]]
            fields[kind] = [{key: value for key, value in one.items() if not _is_default(key, value)} for one in shown]
            fields["events"] = fields["events"] if kind == "commands" else []
            text = json.dumps(fields, separators=(",", ":"))
    if len(text.encode()) > _FIELD_BYTES_MAX:
        raise LimitExceeded(
            f"link_announcement_bytes={LINK_ANNOUNCEMENT_BYTES.default}: {info.name!r} has too many methods, or names "
            "that are too long: divide it into several services"
        )
    return {FIELD: text}


def _is_default(key: str, value: Any) -> bool:
    """Return whether readers fill in a key that is left out."""
    return not value or (key, value) == ("visibility", "private")


class AgentInfo(msgspec.Struct, frozen=True):
    """Description that an agent announces.

    Attributes:
        id: Its id.
        type: Its type.
        capabilities: Its capabilities.
    """

    id: str
    type: str
    capabilities: list[str]


AnnouncedInfo: TypeAlias = ServiceInfo | AgentInfo


class Reader:
    """Reads the announcements of services and agents. The reader skips and counts malformed ones:
    their sender is not trusted.

    Args:
        node: The name of the node that reads, for its log.

    Attributes:
        skipped: Number of skipped entries.
    """

    def __init__(self, node: str) -> None:
        self.skipped = 0
        self._node = node

    def decode(self, entry: Announcement) -> AnnouncedInfo | None:
        """Return the service with one instance, or the agent, that an entry describes. None if it
        is malformed.
        """
        try:
            decoded = _decode(entry)
        except (ValueError, RecursionError) as error:
            self.skip(entry, str(error))
            return None
        return decoded

    def skip(self, entry: Announcement, problem: str) -> None:
        """Count a malformed entry. Few of many are logged."""
        self.skipped += 1
        if self.skipped & (self.skipped - 1) == 0:
            log.warning(
                "link.announcement_skipped",
                "%(node)s: what node %(peer)s says on %(subject)s is skipped, %(count)d so far: %(error)s",
                node=self._node,
                peer=short(entry.node),
                subject=short(entry.pattern),
                count=self.skipped,
                error=short(problem),
            )


def _decode(entry: Announcement) -> AnnouncedInfo:
    if entry.kind == "wrong":
        raise ValueError(entry.text)
    if entry.kind == AGENT:
        return msgspec.json.decode(entry.text, type=AgentInfo)
    return msgspec.json.decode(entry.text, type=ServiceInfo)


def _text(listed: bytes, at: int, form: str) -> tuple[str, int]:
    (length,) = struct.unpack_from(form, listed, at)
    at += struct.calcsize(form)
    return listed[at : at + length].decode(), at + length
