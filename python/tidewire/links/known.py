"""Follows which services other nodes serve."""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import msgspec

from tidewire._limits import SERVICE_METHODS
from tidewire._log import logger
from tidewire.errors import WireError
from tidewire.services.info import ServiceInfo
from tidewire.services.names import short, timeout_problem, token_problem, visibility_problem

FIELD = "service"
"""What a service says of itself."""
AGENT = "agent"
"""What an agent says of itself."""
_FIELD_BYTES_MAX = 16_000
_TOKEN = re.compile(r"[!-)+-\-/-=?-}]+")


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


@dataclass(frozen=True)
class NodeInfo:
    """A node that has joined a hub, or the hub itself.

    Attributes:
        name: Its name.
        user: Whose token it has; empty where there are none.
        subscriptions: What it is subscribed to: its services, agents and subjects, and what it wants to hear of the hub.
        open_calls: Calls that others have made to it and that it has not answered yet.
        joined_s: How many seconds ago it joined.
    """

    name: str
    user: str
    subscriptions: int
    open_calls: int
    joined_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def nodes(listed: bytes) -> Iterator[NodeInfo]:
    """Read the hub's list of nodes, whose form is in section 6 of ``spec/wire.md``.

    Raises:
        WireError: if it is not one.
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
            yield Entry(node, queue, pattern, in_progress, _fields(says))
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


class AgentInfo(msgspec.Struct, frozen=True):
    """What an agent says of itself.

    Attributes:
        id: Its id.
        type: Its type.
        capabilities: What it can do.
    """

    id: str
    type: str
    capabilities: list[str]


Told: TypeAlias = ServiceInfo | AgentInfo


class Reader:
    """Reads what the hub says of services and agents. What is not as it should be is skipped, and counted: whoever announces it is a stranger.

    Args:
        node: The name of the node that reads, for its log.

    Attributes:
        skipped: How many entries were.
    """

    def __init__(self, node: str) -> None:
        self.skipped = 0
        self._node = node

    def told(self, entry: Entry) -> Told | None:
        """Return the service with one instance, or the agent, that an entry describes; None if it describes neither."""
        try:
            told = _told(entry)
        except (ValueError, RecursionError) as error:
            self.skip(entry, str(error))
            return None
        return told

    def skip(self, entry: Entry, problem: str) -> None:
        """Count an entry that is of no use. Of many, few are logged."""
        self.skipped += 1
        if self.skipped & (self.skipped - 1) == 0:
            logger.warning(
                "%s: what node %s says on %s is skipped, %d so far: %s",
                self._node,
                short(entry.node),
                short(entry.pattern),
                self.skipped,
                short(problem),
            )


def agent_subject(id: str) -> str:
    """Return the subject of an agent: its id where that is one token, else that in hexadecimal digits."""
    if _TOKEN.fullmatch(id) and len(id) < 100:
        return f"agent.{id}"
    return f"agent.~{id.encode().hex()}"


def service_pattern(service: str, instance: str) -> str:
    """Return what an instance of a service subscribes to."""
    return f"svc.{service}.{instance}.*"


def _told(entry: Entry) -> Told | None:
    if AGENT in entry.says:
        agent = msgspec.json.decode(entry.says[AGENT], type=AgentInfo)
        if agent_subject(agent.id) != entry.pattern or entry.queue:
            raise ValueError("its id is not that of its subject")
        return agent
    if FIELD not in entry.says:
        return None
    info = msgspec.json.decode(entry.says[FIELD], type=ServiceInfo)
    if len(info.instances) != 1 or service_pattern(info.name, info.instances[0]) != entry.pattern or entry.queue:
        raise ValueError("its name and its instance are not those of its subject")
    if len(info.methods) > SERVICE_METHODS.max or len(info.events) > SERVICE_METHODS.max:
        raise ValueError(f"{SERVICE_METHODS.name}={SERVICE_METHODS.max}: it has more")
    if len({method.name for method in info.methods}) < len(info.methods):
        raise ValueError("two of its methods have one name")
    problems = [
        visibility_problem("visibility", one) for one in (info.visibility, *(m.visibility for m in info.methods))
    ]
    for method in info.methods:
        problems.append(token_problem("method", method.name))
        if method.timeout is not None:
            problems.append(timeout_problem("timeout", method.timeout))
    problem = next(filter(None, problems), None)
    if problem is not None:
        raise ValueError(problem)
    return info


def _text(listed: bytes, at: int, form: str) -> tuple[str, int]:
    (length,) = struct.unpack_from(form, listed, at)
    at += struct.calcsize(form)
    return listed[at : at + length].decode(), at + length


def _fields(said: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 1
    # What is broken in it is the fault of whoever said it, and not of the hub.
    with contextlib.suppress(struct.error, UnicodeDecodeError):
        for _ in range(said[0] if said else 0):
            name, at = _text(said, at, "<B")
            value, at = _text(said, at, "<H")
            found.setdefault(name, value)
    return found
