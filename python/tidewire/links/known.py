"""Follows which services other nodes serve."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidewire._log import logger
from tidewire.errors import WireError
from tidewire.services.info import EventInfo, MethodInfo, ServiceInfo

FIELD = "service"
"""What a service says of itself."""
AGENT = "agent"
"""What an agent says of itself."""
_FIELD_BYTES_MAX = 16_000


@dataclass(frozen=True)
class Entry:
    """What a hub says of one subscription.

    Attributes:
        node: The name of the node that subscribed.
        queue: Its queue group, or an empty text.
        pattern: Its pattern.
        in_progress: Calls that it has not answered yet.
        says: What the subscriber says of itself.
    """

    node: str
    queue: str
    pattern: str
    in_progress: int
    says: dict[str, str]


def entries(listed: bytes) -> Iterator[Entry]:
    """Read a list of the hub, whose form is in section 6 of ``spec/wire.md``.

    Raises:
        WireError: if it is not one.
    """
    at = 0
    try:
        while at < len(listed):
            node, at = _text(listed, at, "<H")
            queue, at = _text(listed, at, "<H")
            pattern, at = _text(listed, at, "<H")
            in_progress, length = struct.unpack_from("<II", listed, at)
            says, at = listed[at + 8 : at + 8 + length], at + 8 + length
            yield Entry(node, queue, pattern, in_progress, dict(_fields(says)))
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise WireError(f"the hub's list of services is not of the form that this version knows: {error}") from error


def described(info: ServiceInfo) -> dict[str, str]:
    """Return what an instance says of itself. Without its schemas, if it would be too long with them."""
    text = json.dumps(info.to_dict(), separators=(",", ":"))
    if len(text.encode()) > _FIELD_BYTES_MAX:
        logger.warning("service %r: its schemas are too long to be listed, and are left out", info.name)
        short = {**info.to_dict(), "events": []}
        short["methods"] = [{**method, "parameters": {}, "result": {}} for method in short["methods"]]
        text = json.dumps(short, separators=(",", ":"))
    return {FIELD: text}


def agent_of(entry: Entry) -> dict[str, Any]:
    """Return the id, the type and the capabilities of the agent that an entry describes.

    Raises:
        WireError: if it describes none.
    """
    try:
        told = json.loads(entry.says[AGENT])
        return {
            "id": str(told["id"]),
            "type": str(told["type"]),
            "capabilities": [str(one) for one in told["capabilities"]],
        }
    except (ValueError, TypeError, KeyError) as error:
        raise WireError(f"node {entry.node!r}: what it says of an agent is not understood: {error}") from error


def info_of(entry: Entry) -> ServiceInfo | None:
    """Return the service that an entry describes, or None if it describes none."""
    text = entry.says.get(FIELD)
    if text is None:
        return None
    try:
        return _info(json.loads(text))
    # Whatever a node of another version says of itself: its service can't be called from here, and that is all.
    except (ValueError, TypeError, KeyError) as error:
        logger.warning("node %r: what it says of a service is not understood: %s", entry.node, error)
        return None


def _info(found: dict[str, Any]) -> ServiceInfo:
    methods = tuple(MethodInfo(**{**method, "notes": tuple(method["notes"])}) for method in found["methods"])
    events = tuple(EventInfo(**event) for event in found["events"])
    return ServiceInfo(
        found["name"], found["description"], found["visibility"], methods, events, tuple(found["instances"])
    )


def _text(listed: bytes, at: int, form: str) -> tuple[str, int]:
    (length,) = struct.unpack_from(form, listed, at)
    at += struct.calcsize(form)
    return listed[at : at + length].decode(), at + length


def _fields(said: bytes) -> Iterator[tuple[str, str]]:
    at = 1
    for _ in range(said[0] if said else 0):
        name, at = _text(said, at, "<B")
        value, at = _text(said, at, "<H")
        yield name, value
