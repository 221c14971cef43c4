"""Columns of results, from the return annotation of a function or from its first result."""

from __future__ import annotations

import collections.abc
import datetime
import enum
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tidewire._campaigns.parameters import annotations_of, hint_of
from tidewire._campaigns.results import form_of, plain
from tidewire.errors import InvalidArgument

Columns = list[tuple[str, str]]
"""Names and types, in order."""

SINGLE = "value"
"""The column of a function that returns a single value."""

_PLAIN: dict[type, str] = {bool: "boolean", int: "integer", float: "float", str: "text", datetime.datetime: "time"}
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Iterator, collections.abc.Generator)
_UNION = getattr(types, "UnionType", None)
_RESERVED = ("run", "row", "param_set")
_NAME_BYTES_MAX = 63
_COLUMNS_MAX = 500


def of_function(function: Callable[..., Any]) -> tuple[Columns, bool] | None:
    """Return the columns of a function's return annotation, and whether it returns several rows;
    None if the annotation does not define them.

    Raises:
        InvalidArgument: if the annotation has no columns.
    """
    try:
        hint = hint_of(function, "return")
    except Exception:  # noqa: BLE001
        # The annotation has undefined names: the first result defines the columns.
        return None
    if hint is type(None) or (hint is None and "return" in annotations_of(function)):
        raise InvalidArgument(
            f"function: {getattr(function, '__qualname__', function)} returns None: let it return its columns, or a number"
        )
    if hint is None or hint is Any:
        return None
    many = False
    item = _item_of_list(hint)
    if item is not None:
        hint, many = item, True
    columns = _of_class(hint)
    return None if columns is None else (checked(columns), many)


def of_result(result: Any) -> tuple[Columns, bool]:
    """Return the columns of a result, and whether it has several rows.

    Raises:
        InvalidArgument: if the result does not define them.
    """
    many = isinstance(result, (list, tuple)) and form_of(type(result))[0] != "record"
    if many:
        if not result:
            raise InvalidArgument(
                "the first result is an empty list, which has no columns: annotate the result of the function"
            )
        result = result[0]
    form, names = form_of(type(result))
    if form == "mapping":
        values = dict(result)
        for name in values:
            if not isinstance(name, str):
                raise InvalidArgument(f"column {name!r}: a name of a column is text")
    elif form == "record":
        values = {name: getattr(result, name) for name in names}
    else:
        values = {SINGLE: result}
    return checked([(name, _of_value(name, value)) for name, value in values.items()]), many


def checked(columns: Columns) -> Columns:
    """Return the columns if a store can have them.

    Raises:
        InvalidArgument: if a name is not allowed, or there are no or too many columns.
    """
    if not 0 < len(columns) <= _COLUMNS_MAX:
        raise InvalidArgument(f"columns: there are {len(columns)}; 1 to {_COLUMNS_MAX} are allowed")
    seen: set[str] = set()
    for name, _ in columns:
        size = len(name.encode("utf-8", "replace"))
        if not 0 < size <= _NAME_BYTES_MAX or "\0" in name:
            raise InvalidArgument(f"column {name!r}: a name has 1 to {_NAME_BYTES_MAX} bytes, without NUL")
        if name.lower() in _RESERVED:
            raise InvalidArgument(f"column {name!r}: this name is the store's own: choose another one")
        if name.lower() in seen:
            raise InvalidArgument(f"column {name!r}: another one has this name, as stores don't mind its case")
        seen.add(name.lower())
    return columns


def _item_of_list(hint: Any) -> Any:
    """Return the item type of a list; Any if it is unknown, None if the type is not a list."""
    origin = typing.get_origin(hint) or hint
    if origin is tuple and typing.get_args(hint)[1:] == (...,):
        return typing.get_args(hint)[0]
    if origin in _LISTS:
        return (*typing.get_args(hint), Any)[0]
    return None


def _of_class(hint: Any) -> Columns | None:
    hint = _stripped(hint)
    if isinstance(hint, type) and typing.get_origin(hint) is None and not issubclass(hint, enum.Enum):
        fields = _hinted_fields(hint)
        if fields is not None:
            columns = [(name, _of_hint(field)) for name, field in fields.items()]
            return None if any(kind is None for _, kind in columns) else typing.cast(Columns, columns)
        if issubclass(hint, Mapping):
            return None
    origin = typing.get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return None
    kind = _of_hint(hint)
    return None if kind is None else [(SINGLE, kind)]


def _hinted_fields(kind: type) -> dict[str, Any] | None:
    try:
        if typing.is_typeddict(kind):
            return typing.get_type_hints(kind)
        form, names = form_of(kind)
        if form != "record":
            return None
        hints = typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001
        return None
    return {name: hints.get(name, Any) for name in names}


def _stripped(hint: Any) -> Any:
    """Return an annotation without Annotated, NewType, Required and ``| None``."""
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated or getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly"):
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif origin is typing.Union or (_UNION is not None and origin is _UNION):
            others = [arg for arg in typing.get_args(hint) if arg is not type(None)]
            if set(others) == {int, float}:
                return float
            if len(others) != 1:
                return hint
            hint = others[0]
        else:
            return hint


def _of_hint(hint: Any) -> str | None:
    """Return the column type of an annotation, or None if the annotation does not define it."""
    hint = _stripped(hint)
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return None
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return _of_values(typing.get_args(hint))
    if origin is typing.Union or (_UNION is not None and origin is _UNION):
        kinds = {_of_hint(arg) for arg in typing.get_args(hint) if arg is not type(None)}
        return kinds.pop() if len(kinds) == 1 else "json"
    if origin is None and isinstance(hint, type):
        if issubclass(hint, enum.Enum):
            return _of_values(member.value for member in hint)
        for plain_type, kind in _PLAIN.items():
            if issubclass(hint, plain_type):
                return kind
        scalar = _of_scalar(hint)
        if scalar is not None:
            return scalar
    return "json"


def _of_scalar(kind: type) -> str | None:
    """Return the column type of a class of NumPy scalars."""
    for base in kind.__mro__:
        if base.__module__ == "numpy":
            name = base.__name__
            if name in ("integer", "floating", "bool", "bool_", "str_"):
                return {"integer": "integer", "floating": "float", "str_": "text"}.get(name, "boolean")
    return None


def _of_values(values: typing.Iterable[Any]) -> str:
    kinds = {
        next((kind for plain_type, kind in _PLAIN.items() if isinstance(value, plain_type)), "json") for value in values
    }
    return kinds.pop() if len(kinds) == 1 else "json"


def _of_value(name: str, value: Any) -> str:
    if value is None:
        raise InvalidArgument(
            f"column {name}: the first result has None, which has no type: annotate the result of the function"
        )
    return _of_values([plain(value)])
