"""Schema keywords for wire values that JSON does not have.

``x-value`` names a value such as a time without a zone. ``x-keys`` has the schema of keys that are
not text. ``x-fields`` has the item names of a record that is an array in JSON.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from msgspec import inspect as mi

Schema = dict[str, Any]

_ZONES = {None: "datetime", True: "zoned-datetime", False: "local-datetime"}
_TYPES = {mi.NoneType: "null", mi.BoolType: "boolean", mi.IntType: "integer", mi.StrType: "string"}
_TYPES |= {mi.FloatType: "number"}
_FORMATS = {mi.BytesType: "binary", mi.DateType: "date", mi.TimeType: "time", mi.TimeDeltaType: "duration"}
_FORMATS |= {mi.UUIDType: "uuid", mi.DecimalType: "decimal"}


def mark(hint: Any, made: Schema, defined: Schema) -> None:
    """Add keywords to the schema of a type, and to the schemas that it refers to."""
    try:
        _mark(mi.type_info(hint), made, defined, set())
    # Types that msgspec does not know raise errors of any class.
    except Exception:  # noqa: BLE001
        return


def _mark(kind: Any, made: Schema, defined: Schema, done: set[str]) -> None:
    kind = _bare(kind)
    parts: Iterable[tuple[mi.Type, Any]] = ()
    if "$ref" in made:
        name = made["$ref"].rpartition("/")[2]
        if name not in done:
            done.add(name)
            parts = [(kind, defined.get(name))]
    elif isinstance(kind, (mi.DateTimeType, mi.TimeType)):
        made["x-value"] = _ZONES[kind.tz] if isinstance(kind, mi.DateTimeType) else "time"
    elif isinstance(kind, mi.CollectionType):
        parts = [(kind.item_type, made.get("items"))]
    elif isinstance(kind, mi.TupleType):
        parts = zip(kind.item_types, made.get("prefixItems", ()), strict=False)
    elif isinstance(kind, mi.DictType):
        if not isinstance(_bare(kind.key_type), mi.StrType):
            made["x-keys"] = _key(kind.key_type)
        parts = [(kind.value_type, made.get("additionalProperties"))]
    elif isinstance(kind, mi.UnionType):
        options = (one["anyOf"] if "discriminator" in one else [one] for one in made.get("anyOf", ()))
        parts = zip(sorted(kind.types, key=_place), itertools.chain.from_iterable(options), strict=False)
    elif "prefixItems" in made:
        made["x-fields"] = [field.name for field in kind.fields]
        # A tag goes before the fields.
        parts = zip([field.type for field in kind.fields], made["prefixItems"][-len(kind.fields) :], strict=False)
    elif isinstance(kind, (mi.DataclassType, mi.StructType, mi.TypedDictType)):
        parts = [(field.type, made.get("properties", {}).get(field.encode_name)) for field in kind.fields]
    for part, schema in parts:
        if isinstance(schema, dict):
            _mark(part, schema, defined, done)


def _bare(kind: mi.Type) -> mi.Type:
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    return kind


def _place(kind: mi.Type) -> int:
    """Return the position of a union member in the order of msgspec's schemas."""
    kind = _bare(kind)
    return 2 if isinstance(kind, mi.NoneType) else int(isinstance(kind, mi.StructType) and not kind.array_like)


def _key(kind: mi.Type) -> Schema:
    """Return the schema of keys."""
    kind = _bare(kind)
    if isinstance(kind, mi.DateTimeType):
        return {"type": "string", "x-value": _ZONES[kind.tz]}
    if isinstance(kind, (mi.EnumType, mi.LiteralType)):
        return {"enum": kind.values if isinstance(kind, mi.LiteralType) else [one.value for one in kind.cls]}
    if isinstance(kind, mi.UnionType):
        return {"anyOf": [_key(one) for one in kind.types]}
    if isinstance(kind, mi.TupleType):
        return {"type": "array", "prefixItems": [_key(one) for one in kind.item_types], "items": False}
    if isinstance(kind, mi.VarTupleType):
        return {"type": "array", "items": _key(kind.item_type)}
    if type(kind) in _FORMATS:
        return {"type": "string", "format": _FORMATS[type(kind)]}
    return {"type": _TYPES[type(kind)]} if type(kind) in _TYPES else {}
