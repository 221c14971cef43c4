"""JSON and MessagePack forms of a message: one map with the same keys. See spec/messages.md."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from tidewire.agents.message import KINDS, PRIORITIES, Kind, Message, Priority
from tidewire.errors import InvalidArgument

_DEPTH_MAX = 64
_PLAIN = (type(None), bool, int, float, str, datetime)
_INTEGERS = (-(2**63), 2**64 - 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Form(msgspec.Struct, omit_defaults=True):
    """Serialized form of a message."""

    id: str
    kind: Kind
    created_at: datetime
    payload: Any = None
    payload_type: str | None = None
    sender: str = ""
    recipients: tuple[str, ...] = ()
    topic: str | None = None
    priority: Priority = "normal"
    ttl_ms: float | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    headers: dict[str, str] = {}
    delivery: int = 1


def to_json(message: Message) -> bytes:
    """Encode a message as JSON."""
    return _encode(msgspec.json.encode, message, binary=False)


def to_msgpack(message: Message) -> bytes:
    """Encode a message as MessagePack."""
    return _encode(msgspec.msgpack.encode, message, binary=True)


def from_json(data: bytes | str) -> Message:
    """Decode a message from JSON."""
    return _message(_read(msgspec.json.Decoder(Form).decode, data, "JSON"))


def from_msgpack(data: bytes) -> Message:
    """Decode a message from MessagePack."""
    return _message(_read(msgspec.msgpack.Decoder(Form).decode, data, "MessagePack"))


def _form(message: Message) -> Form:
    payload, payload_type = _untyped(message.payload)
    return Form(
        id=message.id,
        kind=message.kind,
        created_at=message.created_at,
        payload=payload,
        payload_type=payload_type,
        sender=message.sender,
        recipients=message.recipients,
        topic=message.topic,
        priority=message.priority,
        ttl_ms=None if message.ttl is None else message.ttl * 1000,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        headers=dict(message.headers),
        delivery=message.delivery,
    )


def _message(form: Form) -> Message:
    _check_depth(form.payload)
    if form.delivery < 1:
        raise InvalidArgument(f"delivery: {form.delivery} is not allowed: deliveries are counted from 1")
    if form.ttl_ms is not None and not form.ttl_ms >= 0:
        raise InvalidArgument(f"ttl_ms: {form.ttl_ms} is not allowed: give 0 milliseconds or more")
    if form.created_at.tzinfo is None:
        raise InvalidArgument("created_at: the time has no zone: write it in UTC, with a Z at the end")
    message = Message(
        _typed(form.payload, form.payload_type),
        form.kind,
        form.sender,
        # A difference, as times at both ends of the calendar have no value in UTC.
        (form.created_at - _EPOCH).total_seconds(),
        form.recipients,
        form.topic,
        form.priority,
        headers=form.headers,
        delivery=form.delivery,
        correlation_id=form.correlation_id,
        reply_to=form.reply_to,
        given_id=form.id,
    )
    if form.ttl_ms is not None:
        age = max(0.0, datetime.now(UTC).timestamp() - message.created)
        message.live_for(max(0.0, form.ttl_ms / 1000 - age))
        message.ttl = form.ttl_ms / 1000
    return message


def _untyped(payload: Any) -> tuple[Any, str | None]:
    """Return a payload as plain values, and the name of its type, or None."""
    kind = type(payload)
    if not _is_typed(kind):
        return payload, None
    name = f"{kind.__module__}:{kind.__qualname__}"
    if hasattr(kind, "model_dump"):
        return payload.model_dump(), name
    return msgspec.to_builtins(payload, builtin_types=(bytes, datetime)), name


def _typed(payload: Any, name: str | None) -> Any:
    """Convert a payload to its type if this process has loaded that type. Else return plain
    values.

    Only data types of modules that are already imported are resolved: a message can't make this
    process import or call anything else.
    """
    kind = None if name is None else _find(name)
    if kind is None:
        return payload
    try:
        if hasattr(kind, "model_validate"):
            return kind.model_validate(payload)
        return msgspec.convert(payload, kind)
    # The constructor of a type is user code, and may raise any exception.
    except Exception as error:
        raise InvalidArgument(f"payload: not a {name}: {error}") from error


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and _is_typed(found) else None


def _is_typed(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "__pydantic_validator__")


def _check(value: Any, path: str, binary: bool, typed: bool, depth: int = 0) -> None:
    """Refuse values that would not survive a round trip. The error names the place."""
    if depth > _DEPTH_MAX:
        raise InvalidArgument(f"{path}: nested deeper than {_DEPTH_MAX} levels: flatten it")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidArgument(f"{path}: the key {key!r} is not a string: keys are strings in both forms")
            _check(inner, f"{path}[{key!r}]", binary, typed, depth + 1)
    elif isinstance(value, (list, tuple)):
        for at, inner in enumerate(value):
            _check(inner, f"{path}[{at}]", binary, typed, depth + 1)
    elif isinstance(value, int) and not _INTEGERS[0] <= value <= _INTEGERS[1]:
        raise InvalidArgument(f"{path}: {value} has more than 64 bits: send it as text")
    elif isinstance(value, float) and not binary and not math.isfinite(value):
        raise InvalidArgument(f"{path}: {value} can't be written as JSON: use MessagePack, or None")
    elif isinstance(value, datetime) and not typed:
        _check_time(value, path, binary)
    elif not isinstance(value, (*_PLAIN, bytes, bytearray) if binary else _PLAIN):
        fix = "use MessagePack" if isinstance(value, (bytes, bytearray)) else "send a dataclass, or plain values"
        form = "MessagePack" if binary else "JSON"
        raise InvalidArgument(f"{path}: a {type(value).__name__} can't be written as {form}: {fix}")


def _check_depth(value: Any, depth: int = 0) -> None:
    """Refuse a payload that is nested too deep."""
    if depth > _DEPTH_MAX:
        raise InvalidArgument(f"payload: nested deeper than {_DEPTH_MAX} levels: flatten it before it is written")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        _check_depth(one, depth + 1)


def _check_time(value: datetime, path: str, binary: bool) -> None:
    """Refuse times of an untyped payload in JSON, and times without a zone in MessagePack."""
    if not binary:
        raise InvalidArgument(f"{path}: JSON has no times: use MessagePack, send a dataclass, or text")
    if value.utcoffset() is None:
        raise InvalidArgument(f"{path}: {value} has no zone: give it one, such as timezone.utc, or send a dataclass")


def _encode(encode: Callable[[Any], bytes], message: Message, binary: bool) -> bytes:
    try:
        form = _form(message)
    except (TypeError, ValueError, OverflowError, AttributeError, RecursionError, OSError) as error:
        raise InvalidArgument(f"message: can't be written: {error}") from error
    _check(form.payload, "payload", binary, typed=form.payload_type is not None)
    try:
        return encode(form)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"payload: can't be written: {error}") from error


def _read(decode: Callable[[Any], Form], data: Any, name: str) -> Form:
    if not isinstance(data, (bytes, bytearray, memoryview, str)):
        raise InvalidArgument(f"data: {type(data).__name__} is not allowed: give the bytes of a {name} form")
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"message: {error}: see spec/messages.md for the fields") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"message: not {name}: {error}") from error


__all__ = ["KINDS", "PRIORITIES", "Form", "from_json", "from_msgpack", "to_json", "to_msgpack"]
