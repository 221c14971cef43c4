"""Recipients and messages of an outgoing call."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Any

from tidewire import _trace_context
from tidewire.agents.message import HAS_RECEIPT, IS_CONTEXT, KINDS, PRIORITIES, Message
from tidewire.agents.receipt import Receipt
from tidewire.agents.retry import Retry
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire.agents.agent import Agent
    from tidewire.agents.agent_state import AgentState


def targets(agent_state: AgentState, to: Any, type: str | None, capability: str | None) -> list[Agent]:
    """Return the live agents that a call addresses.

    Raises:
        NoSuchTarget: if no live agent matches.
        InvalidArgument: if the call names no recipient, or combines ``to`` with a type or
            capability, or an argument is not a string.
    """
    directory = agent_state.directory
    if to is not None and (type is not None or capability is not None):
        raise InvalidArgument(f"to: {to!r} is not allowed beside type= or capability=: give one or the other")
    for field, value in (("type", type), ("capability", capability)):
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{field}: {value!r} is not allowed: give a string")
    if to is None and type is None and capability is None:
        raise InvalidArgument("to: no recipient is named: give to=, type= or capability=")
    if to is None:
        return [directory.choose(type, capability)]
    ids = [to] if isinstance(to, str) else list(to) if is_many(to) else [to]
    invalid = next((one for one in ids if not isinstance(one, str)), None)
    if invalid is not None or not ids:
        raise InvalidArgument(f"to: {to!r} is not allowed: give the id of an agent, or several ids")
    return [directory.find(one) for one in dict.fromkeys(ids)]


def durable_ids(to: Any, type: Any, capability: Any, retry: Any, receipt: Any) -> list[str]:
    """Return the ids of the recipients of a durable message.

    Raises:
        InvalidArgument: if an argument is not allowed for durable messages.
    """
    for field, value in (("type", type), ("capability", capability)):
        if value is not None:
            raise InvalidArgument(
                f"{field}: {value!r} is not allowed with durable=True: give ids, whose agents may not run"
            )
    for field, value in (("retry", retry), ("receipt", receipt or None)):
        if value is not None:
            raise InvalidArgument(
                f"{field}: {value!r} is not allowed with durable=True: the recipient's retries count, and it may run later"
            )
    ids = [to] if isinstance(to, str) else list(to) if is_many(to) else [to]
    invalid = next((one for one in ids if not isinstance(one, str) or not one), None)
    if invalid is not None or not ids:
        raise InvalidArgument(f"to: {to!r} is not allowed: give the id of an agent, or several ids")
    return list(dict.fromkeys(ids))


def messages(
    agent_state: AgentState,
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
    """Return one message for each recipient.

    Raises:
        InvalidArgument: if an argument is not allowed.
    """
    check(kind, priority, ttl, retry, correlation_id)
    recipients = tuple(target.id for target in targets)
    headers = sent_headers(recipients, headers)
    result: list[Message] = []
    for target in targets:
        message = Message(payload, kind, agent_state.id, time(), recipients, None, priority)  # type: ignore[arg-type]
        message.headers, message.retry, message.correlation_id = headers, retry, correlation_id
        if result:
            message.given_id = result[0].id
        if ttl is not None:
            message.live_for(ttl)
        if kind == "context":
            message.flags |= IS_CONTEXT
        if receipt:
            message.flags |= HAS_RECEIPT
            message.receipt = Receipt(target.id, target._registered_state)
        result.append(message)
    return result


def is_many(to: Any) -> bool:
    """Return True if ``to`` is a collection of ids."""
    return isinstance(to, Iterable) and not isinstance(to, (str, bytes))


def check(kind: Any, priority: Any, ttl: Any, retry: Any, correlation_id: Any) -> None:
    """Raise InvalidArgument if an option of a message is not allowed."""
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


def sent_headers(recipients: Sequence[str], headers: Any) -> Mapping[str, str]:
    """Return the headers of a message with its span. Raises InvalidArgument."""
    checked, spans = checked_headers(headers), _trace_context.spans
    return checked if spans is None else spans.message(", ".join(recipients), checked, "send")


def checked_headers(headers: Any) -> Mapping[str, str]:
    """Return a copy of the headers of a message. Raises InvalidArgument if they are malformed."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping) or not all(isinstance(part, str) for item in headers.items() for part in item):
        raise InvalidArgument(f"headers: {headers!r} is not allowed: give a mapping of strings to strings")
    return dict(headers)
