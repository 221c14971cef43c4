"""Converters from plain data to annotated types: by msgspec, or part by part for types that msgspec
does not fully support.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Collection, Mapping
from operator import is_ as _is
from typing import Any

import msgspec

from tidewire.services.caller.callables import function
from tidewire.services.caller.items import typed_stream
from tidewire.services.contract.names import short
from tidewire.services.contract.type_hints import stream_item, text
from tidewire.values.plans import DECLARED, field_names, is_dataclass, is_model, is_struct
from tidewire.values.record_check import map_maker

Convert = Callable[[Any], Any]
UNFIT = (msgspec.ValidationError, TypeError, ValueError, NotImplementedError, RecursionError)
"""Errors of a converter for an unfit value."""

_SEQUENCES: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    tuple: tuple,
    collections.deque: collections.deque,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
_MAPS: dict[Any, Callable[[dict[Any, Any]], Any]] = {
    dict: dict,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}
_DATA = (list, tuple, set, frozenset)


def converter(hint: Any) -> tuple[type | None, Convert | None]:
    """Return the class whose objects need no check, and the converter of other values, for a type.
    Unknown types accept all values.
    """
    return _converter(hint, {})


def _converter(hint: Any, in_progress: dict[Any, _ForwardConverter]) -> tuple[type | None, Convert | None]:
    hint = _resolved_type(hint)
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return None, None
    if (typing.get_origin(hint) or hint) is Callable:
        return None, functools.partial(function, hint)
    streams, item = stream_item(hint)
    if streams:
        return None, functools.partial(typed_stream, hint, item, _converter(item, in_progress)[1])
    exact = hint if isinstance(hint, type) and not typing.get_args(hint) and not typing.is_typeddict(hint) else None
    if _is_whole(hint):
        has_tuples = _has_named_tuple(hint)
        if not has_tuples and not _has_closed(hint):
            return exact, functools.partial(_convert_whole, hint, exact)
        fields = _field_hints(hint)
        if exact is not None and not has_tuples and _is_flat(exact, fields):
            return exact, functools.partial(_convert_flat, hint, exact, frozenset(fields))
    return exact, _parts_converter(hint, exact, in_progress)


def _resolved_type(hint: Any) -> Any:
    """Return the type of an alias, a new type or an annotated type."""
    while True:
        if isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif typing.get_origin(hint) is typing.Annotated and not _is_whole(hint):
            hint = typing.get_args(hint)[0]
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return hint


def _is_whole(hint: Any) -> bool:
    """Return True if msgspec supports a type with all its parts."""
    try:
        msgspec.convert(None, hint, dec_hook=_accept)
    except msgspec.ValidationError:
        pass
    # Types that msgspec does not know raise errors of any class.
    except Exception:  # noqa: BLE001
        return False
    return True


def _has_closed(hint: Any) -> bool:
    """Return True if a type has records whose unknown fields msgspec would silently drop. Structs
    have their own setting for this.
    """
    hint = _resolved_type(hint)
    if isinstance(hint, type) and not typing.get_args(hint):
        return typing.is_typeddict(hint) or (is_dataclass(hint) and not is_model(hint))
    return any(map(_has_closed, (typing.get_origin(hint) or Any, *typing.get_args(hint))))


def closed_records(hint: Any, found: set[Any]) -> set[Any]:
    """Return the records in a type and in their fields that refuse unknown fields."""
    hint = _resolved_type(hint)
    if not isinstance(hint, type) or typing.get_args(hint):
        for part in typing.get_args(hint):
            closed_records(part, found)
    elif hint not in found and _has_closed(hint):
        found.add(hint)
        for part in _field_hints(hint).values():
            closed_records(part, found)
    return found


def _has_named_tuple(hint: Any, within: tuple[type, ...] = ()) -> bool:
    """Return True if a type has records that msgspec builds from arrays only, not from maps."""
    hint = _resolved_type(hint)
    parts: Collection[Any] = typing.get_args(hint)
    if isinstance(hint, type) and not parts:
        if hint in within or hasattr(hint, "_fields") or (is_struct(hint) and hint.__struct_config__.array_like):  # type: ignore[attr-defined]
            return hint not in within
        parts, within = _field_hints(hint).values(), (*within, hint)
    return any(_has_named_tuple(part, within) for part in parts)


def _convert_whole(hint: Any, exact: type | None, value: Any) -> Any:
    if exact is not None and _is_instance(value, exact):
        return value
    if getattr(type(value), "stands_for_service", False) and _accepts_service(hint):
        return value
    return msgspec.convert(value, hint, dec_hook=_accept)


def _convert_flat(hint: Any, exact: type, names: frozenset[str], value: Any) -> Any:
    """Build a record without nested records."""
    if type(value) is dict and not value.keys() <= names:
        raise TypeError(_unknown(value, names))
    return _convert_whole(hint, exact, value)


def _is_flat(kind: type, fields: Mapping[str, Any]) -> bool:
    names = field_names(kind)
    return names is not None and len(names) == len(fields) and not any(map(_has_closed, fields.values()))


def _unknown(value: dict[Any, Any], names: Collection[str]) -> str:
    unknown = next(name for name in value if name not in names)
    return f"{unknown}: there is no such field: it has {', '.join(sorted(names)) or 'none'}"


def _is_instance(value: Any, kind: type) -> bool:
    """Return True if a value is an instance of a class. A bool is no number here."""
    return isinstance(value, kind) and (value.__class__ is not bool or kind is bool)


def _accepts_service(hint: Any) -> bool:
    return any(hasattr(part, DECLARED) for part in (hint, *typing.get_args(hint)))


def _accept(kind: Any, value: Any) -> Any:
    """Accept a value of a class that msgspec does not support."""
    origin = typing.get_origin(kind) or kind
    try:
        fits = isinstance(value, origin)
    # A protocol without a runtime check, or another type that is no class, accepts all values.
    except TypeError:
        return value
    if fits:
        return value
    if hasattr(origin, "model_validate"):
        return origin.model_validate(value)
    if origin is complex and isinstance(value, (int, float)):
        return complex(value)
    make = map_maker(kind)
    if make is not None and type(value) is dict:
        parts = typing.get_args(kind)
        keys = parts[0] if parts else Any
        items = parts[1] if len(parts) > 1 else int if origin is collections.Counter else Any
        return make(msgspec.convert(value, dict[keys, items], dec_hook=_accept))  # type: ignore[valid-type]
    raise TypeError(f"Expected `{text(kind)}`, got `{type(value).__name__}`")


# Part by part


class _ForwardConverter:
    """Forward reference to the converter of a recursive type."""

    def __init__(self) -> None:
        self.convert_value: Convert | None = None

    def __call__(self, value: Any) -> Any:
        return value if self.convert_value is None else self.convert_value(value)


def _parts_converter(hint: Any, exact: type | None, in_progress: dict[Any, _ForwardConverter]) -> Convert | None:
    key = hint if exact is None or not isinstance(hint, type) else exact
    if key in in_progress:
        return in_progress[key]
    forward = in_progress[key] = _ForwardConverter()
    forward.convert_value = _converter_by_kind(hint, in_progress)
    del in_progress[key]
    return forward.convert_value


def _converter_by_kind(hint: Any, in_progress: dict[Any, _ForwardConverter]) -> Convert | None:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _any_of([(part, _converter(part, in_progress)[1]) for part in parts])
    if origin is typing.Literal:
        return functools.partial(_literal, hint, parts)
    make = map_maker(hint)
    if origin in _MAPS or make is not None:
        keys = _converter(parts[0], in_progress)[1] if parts else None
        items = _converter(parts[1], in_progress)[1] if len(parts) > 1 else None
        return functools.partial(_map, hint, origin or hint, make or _MAPS[origin], keys, items)
    if origin is tuple and parts[-1:] != (...,):
        return functools.partial(_places, hint, [_converter(part, in_progress)[1] for part in parts])
    if origin in _SEQUENCES:
        item = _converter(parts[0], in_progress)[1] if parts else None
        return functools.partial(_sequence, hint, origin, _SEQUENCES[origin], item)
    kind = origin or hint
    if not isinstance(kind, type):
        return None
    if not parts and issubclass(kind, enum.Enum):
        return functools.partial(_enum, kind)
    fields = _field_hints(kind)
    if not parts and fields:
        convert = {name: _converter(part, in_progress)[1] for name, part in fields.items()}
        return functools.partial(_record, kind, convert)
    return functools.partial(_accept, kind)


def _any_of(choices: list[tuple[Any, Convert | None]]) -> Convert:
    """Return the converter to a union: objects stay unchanged, data is tried in the order of the
    types.
    """
    kinds = [part for part, _ in choices if isinstance(part, type) and not typing.get_args(part)]
    kinds = [kind for kind in kinds if not typing.is_typeddict(kind)]

    def convert(value: Any) -> Any:
        for kind in kinds:
            try:
                if _is_instance(value, kind):
                    return value
            # A protocol without a runtime check.
            except TypeError:
                return value
        problems = []
        for _, one in choices:
            try:
                return value if one is None else one(value)
            except UNFIT as error:
                problems.append(str(error))
        raise TypeError(" and ".join(dict.fromkeys(problems)))

    return convert


def _literal(hint: Any, values: tuple[Any, ...], value: Any) -> Any:
    if any(value == one and value.__class__ is one.__class__ for one in values):
        return value
    raise TypeError(f"Expected `{text(hint)}`, got `{short(value)}`")


def _enum(kind: type[enum.Enum], value: Any) -> Any:
    if isinstance(value, kind):
        return value
    converted = kind(value)
    if value.__class__ is bool and converted.value.__class__ is not bool:
        raise TypeError(f"Expected `{text(kind)}`, got `bool`")
    return converted


def _sequence(hint: Any, kind: type, make: Callable[[list[Any]], Any], item: Convert | None, value: Any) -> Any:
    fits = isinstance(value, kind)
    if not (fits or isinstance(value, _DATA)) or isinstance(value, (str, bytes, bytearray, Mapping)):
        raise TypeError(f"Expected `{text(hint)}`, got `{type(value).__name__}`")
    items = list(value)
    converted = items if item is None else [_convert_part(f"[{at}]", item, one) for at, one in enumerate(items)]
    return value if fits and all(map(_is, converted, items)) else make(converted)


def _places(hint: Any, items: list[Convert | None], value: Any) -> Any:
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"Expected `{text(hint)}`, got `{type(value).__name__}`")
    if len(value) != len(items):
        raise TypeError(f"Expected `{text(hint)}`, got {len(value)} items")
    return tuple(_convert_part(f"[{at}]", item, one) for at, (item, one) in enumerate(zip(items, value, strict=True)))


def _map(
    hint: Any,
    kind: type,
    make: Callable[[dict[Any, Any]], Any],
    keys: Convert | None,
    items: Convert | None,
    value: Any,
) -> Any:
    fits = isinstance(value, kind)
    if not (fits or isinstance(value, dict)):
        raise TypeError(f"Expected `{text(hint)}`, got `{type(value).__name__}`")
    original = dict(value)
    converted = {
        _convert_part("a key", keys, key): _convert_part(f"[{short(key)}]", items, one) for key, one in original.items()
    }
    is_same = all(map(_is, converted, original)) and all(map(_is, converted.values(), original.values()))
    return value if fits and is_same else make(converted)


def _record(kind: Any, fields: dict[str, Convert | None], value: Any) -> Any:
    is_typed = typing.is_typeddict(kind)
    if not is_typed and isinstance(value, kind):
        return value
    if isinstance(value, dict):
        value = _by_names(kind, value)
    else:
        # A named tuple or an array-like struct may arrive as a list.
        if isinstance(value, (list, tuple)) and not is_typed and not is_dataclass(kind) and len(value) <= len(fields):
            value = dict(zip(fields, value, strict=False))
        else:
            raise TypeError(f"Expected `{text(kind)}`, got `{type(value).__name__}`")
    if not value.keys() <= fields.keys():
        raise TypeError(_unknown(value, fields))
    converted = {name: _convert_part(name, fields[name], one) for name, one in value.items()}
    missing = next(iter(sorted(_required(kind, fields) - converted.keys())), None)
    if missing is not None:
        raise TypeError(f"{missing}: the field is missing")
    return converted if is_typed else kind(**converted)


def _by_names(kind: Any, value: dict[Any, Any]) -> dict[Any, Any]:
    """Return the fields of a struct by their Python names, which may differ in data."""
    if not is_struct(kind):
        return value
    names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    return {names.get(name, name): one for name, one in value.items() if name != kind.__struct_config__.tag_field}


def _required(kind: Any, fields: Mapping[str, object]) -> frozenset[str]:
    if typing.is_typeddict(kind):
        return frozenset(kind.__required_keys__)
    from tidewire.values.record_check import defaults_of

    return frozenset(fields.keys() - defaults_of(kind).keys())


def _convert_part(name: str, convert: Convert | None, value: Any) -> Any:
    if convert is None:
        return value
    try:
        return convert(value)
    except UNFIT as error:
        raise TypeError(f"{name}: {error}") from None


def _field_hints(kind: Any) -> dict[str, Any]:
    """Return the types of the constructor fields of a record; empty for other types and unresolved
    fields.
    """
    if typing.get_args(kind) or not isinstance(kind, type) or is_model(kind):
        return {}
    names = list(kind.__annotations__) if typing.is_typeddict(kind) else field_names(kind)
    if not names:
        return {}
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    # A name in an annotation may be known to type checkers only.
    except Exception:  # noqa: BLE001
        return {}
    if typing.is_typeddict(kind):
        return {name: _resolved_field(hint) for name, hint in hints.items()}
    if is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.init and field.name in names]
    return {name: hints.get(name, Any) for name in names}


def _resolved_field(hint: Any) -> Any:
    """Return the type of a field of a typed dict without Required and NotRequired."""
    while getattr(typing.get_origin(hint), "_name", None) in ("Required", "NotRequired", "ReadOnly"):
        hint = typing.get_args(hint)[0]
    return hint
