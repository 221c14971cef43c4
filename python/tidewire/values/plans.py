"""Encoding plans of types, which the compiled part caches."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import sys
import uuid
from collections.abc import Mapping
from typing import Any

from tidewire.values.arrays import is_array, is_scalar
from tidewire.values.type_expressions import expression, parts_of

Plan = tuple[str, str, Any]
DECLARED = "__tidewire_service__"
"""Attribute of classes that are declared as services."""

# Exact types only: subclasses may have further state.
_EXACT: dict[type, str] = {
    memoryview: "memoryview",
    datetime.datetime: "datetime",
    datetime.date: "date",
    datetime.time: "time",
    datetime.timedelta: "timedelta",
    decimal.Decimal: "Decimal",
    uuid.UUID: "UUID",
    complex: "complex",
}
MAPS = (collections.Counter, collections.OrderedDict)
"""Maps of the standard library without state besides their entries."""

FACTORIES: frozenset[type] = frozenset(
    (int, float, complex, str, bytes, list, dict, set, tuple, bool, collections.Counter, collections.deque)
)
"""Factories of a defaultdict that are sent with it."""

_BUILT_IN = (str, int, float, bytes, bytearray, list, dict, tuple, set, frozenset)


def plan(kind: type) -> Plan:
    """Return the kind of plan, the type name, and the names of fields, the function that returns
    fields, or the function that returns the type name and the entries of a map.
    """
    name = type_name(kind)
    if kind in MAPS:
        return "map", name, lambda value: (name, dict(value))
    if kind is collections.defaultdict:
        return "map", name, _describe_defaultdict
    if kind in _EXACT:
        return _EXACT[kind], name, None
    if is_service(kind):
        return "unknown", name, None
    if issubclass(kind, enum.Enum):
        return "enum", name, None
    if issubclass(kind, BaseException):
        return "error", name, None
    if is_model(kind):
        return "mapped", name, lambda model: {**vars(model), **(model.__pydantic_extra__ or {})}
    fields = field_names(kind)
    if fields is not None:
        if _may_be_unset(kind):
            return "mapped", name, _fields_that_are_set
        return "record", name, fields
    if is_array(kind):
        return "array", name, None
    if is_scalar(kind):
        return "scalar", name, None
    base = next((base for base in _BUILT_IN if issubclass(kind, base)), None)
    return "unknown" if base is None else base.__name__, name, None


def type_name(kind: type) -> str:
    """Return the name of a type in values."""
    parts = parts_of(kind) if is_model(kind) else None
    if parts is None:
        return f"{kind.__module__}:{kind.__qualname__}"
    return expression(*parts)


def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a record type other than a pydantic model, or None for other types."""
    if is_struct(kind):
        return tuple(kind.__struct_fields__)  # type: ignore[attr-defined]
    if is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if tuple in _bases(kind) and isinstance(getattr(kind, "_fields", None), tuple):
        return tuple(kind._fields)  # type: ignore[attr-defined]
    return None


def is_service(kind: type) -> bool:
    """Return True if a class is a declared service: its objects are called remotely, not copied."""
    return any(DECLARED in names_of(base) for base in _bases(kind))


def is_struct(kind: type) -> bool:
    """True if a class is a ``msgspec.Struct``. False if msgspec is not imported."""
    return _derives(kind, "msgspec", "Struct")


def is_model(kind: type) -> bool:
    """True if a class is a pydantic model."""
    return _derives(kind, "pydantic", "BaseModel")


def is_dataclass(kind: type) -> bool:
    """True if a class is a data class."""
    return any("__dataclass_fields__" in names_of(base) for base in _bases(kind))


def names_of(kind: type) -> Mapping[str, Any]:
    """Return the namespace of a class, without running code of its metaclass."""
    names: Mapping[str, Any] = type.__dict__["__dict__"].__get__(kind)
    return names


def _bases(kind: type) -> tuple[type, ...]:
    bases: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return bases


def _derives(kind: type, module: str, name: str) -> bool:
    base = getattr(sys.modules.get(module), name, None)
    return base in _bases(kind)


def _may_be_unset(kind: type) -> bool:
    """Return True if a record has fields with the default ``msgspec.UNSET``."""
    msgspec = sys.modules.get("msgspec")
    if msgspec is None:
        return False
    if is_struct(kind):
        return any(default is msgspec.UNSET for default in kind.__struct_defaults__)  # type: ignore[attr-defined]
    return is_dataclass(kind) and any(field.default is msgspec.UNSET for field in dataclasses.fields(kind))


def _fields_that_are_set(record: Any) -> dict[str, Any]:
    unset = sys.modules["msgspec"].UNSET
    fields = {name: getattr(record, name) for name in field_names(type(record)) or ()}
    return {name: value for name, value in fields.items() if value is not unset}


def _describe_defaultdict(value: collections.defaultdict[Any, Any]) -> tuple[str, dict[Any, Any]]:
    factory = value.default_factory
    name = type_name(collections.defaultdict)
    # `in` would ask for the hash of any callable.
    known = isinstance(factory, type) and factory in FACTORIES
    return f"{name}[{type_name(factory)}]" if known else name, dict(value)  # type: ignore[arg-type]
