"""Keywords of schemas for clients that get values on the wire, where JSON has no such value.

``x-value`` names a value such as a time without a zone, ``x-keys`` is the schema of the keys of a
map if they are not all text, and ``x-fields`` has the names of the items of a record that is an
array in JSON.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect as mi

Schema = dict[str, Any]

_ZONES = {None: "datetime", True: "zoned-datetime", False: "local-datetime"}
_RECORDS = (mi.DataclassType, mi.StructType, mi.TypedDictType, mi.NamedTupleType)
_KEYS: dict[type, Schema] = {
    mi.NoneType: {"type": "null"},
    mi.BoolType: {"type": "boolean"},
    mi.IntType: {"type": "integer"},
    mi.FloatType: {"type": "number"},
    mi.StrType: {"type": "string"},
    mi.BytesType: {"type": "string", "contentEncoding": "base64"},
    mi.DateType: {"type": "string", "format": "date"},
    mi.TimeType: {"type": "string", "x-value": "time"},
    mi.TimeDeltaType: {"type": "string", "format": "duration"},
    mi.UUIDType: {"type": "string", "format": "uuid"},
    mi.DecimalType: {"type": "string", "format": "decimal"},
}


def mark(hint: Any, made: Schema, defined: Schema) -> None:
    """Add keywords to the schema of a type, and to those that it refers to."""
    try:
        kind = mi.type_info(hint)
    # Types that msgspec does not know raise errors of any class.
    except Exception:  # noqa: BLE001
        return
    _mark(kind, made, defined, set())


def _mark(kind: mi.Type, made: Any, defined: Schema, done: set[str]) -> None:
    kind = _bare(kind)
    if not isinstance(made, dict):
        return
    if "$ref" in made:
        name = made["$ref"].rpartition("/")[2]
        if name not in done and name in defined:
            done.add(name)
            _mark(kind, defined[name], defined, done)
    elif isinstance(kind, mi.DateTimeType):
        made["x-value"] = _ZONES[kind.tz]
    elif isinstance(kind, mi.TimeType):
        made["x-value"] = "time"
    elif isinstance(kind, mi.CollectionType):
        _mark(kind.item_type, made.get("items"), defined, done)
    elif isinstance(kind, mi.TupleType):
        _mark_all(kind.item_types, made.get("prefixItems", ()), defined, done)
    elif isinstance(kind, mi.DictType):
        if not isinstance(_bare(kind.key_type), mi.StrType):
            made["x-keys"] = _key(kind.key_type)
        _mark(kind.value_type, made.get("additionalProperties"), defined, done)
    elif isinstance(kind, mi.UnionType):
        _mark_all(_in_order(kind), list(_members(made)), defined, done)
    elif isinstance(kind, _RECORDS):
        _mark_fields(kind, made, defined, done)


def _mark_fields(kind: Any, made: Schema, defined: Schema, done: set[str]) -> None:
    types = [field.type for field in kind.fields]
    if "prefixItems" in made:
        made["x-fields"] = [field.name for field in kind.fields]
        _mark_all(types, made["prefixItems"][-len(types) :], defined, done)
        return
    for field in kind.fields:
        _mark(field.type, made.get("properties", {}).get(field.encode_name), defined, done)


def _mark_all(kinds: Iterable[mi.Type], made: Iterable[Any], defined: Schema, done: set[str]) -> None:
    for kind, one in zip(kinds, made, strict=False):
        _mark(kind, one, defined, done)


def _bare(kind: mi.Type) -> mi.Type:
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    return kind


def _in_order(kind: mi.UnionType) -> list[mi.Type]:
    """Return the members of a union in the order in which msgspec writes their schemas."""

    def place(member: mi.Type) -> int:
        bare = _bare(member)
        if isinstance(bare, mi.NoneType):
            return 2
        return int(isinstance(bare, mi.StructType) and not bare.array_like)

    return sorted(kind.types, key=place)


def _members(made: Schema) -> Iterable[Any]:
    for one in made.get("anyOf", ()):
        yield from one["anyOf"] if "discriminator" in one else (one,)


def _key(kind: mi.Type) -> Schema:
    """Return the schema of keys."""
    kind = _bare(kind)
    if isinstance(kind, mi.DateTimeType):
        return {"type": "string", "x-value": _ZONES[kind.tz]}
    if isinstance(kind, (mi.EnumType, mi.LiteralType)):
        return {"enum": list(kind.values if isinstance(kind, mi.LiteralType) else _values(kind.cls))}
    if isinstance(kind, mi.UnionType):
        return {"anyOf": [_key(one) for one in kind.types]}
    if isinstance(kind, mi.TupleType):
        return {"type": "array", "prefixItems": [_key(one) for one in kind.item_types], "items": False}
    if isinstance(kind, mi.VarTupleType):
        return {"type": "array", "items": _key(kind.item_type)}
    return dict(_KEYS.get(type(kind), {}))


def _values(kind: type[enum.Enum]) -> list[Any]:
    return [msgspec.to_builtins(member.value) for member in kind]
