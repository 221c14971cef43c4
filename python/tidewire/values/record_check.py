"""Field checks of a record type: names, and values with checkable annotations."""

from __future__ import annotations

import collections
import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal, Union, cast

from tidewire.values.plans import FACTORIES, field_names, is_dataclass, is_struct

Fits = Callable[[Any], bool]
Check = Callable[[dict[Any, Any]], dict[str, Any]]

# Types that Python accepts in place of another.
_WIDER: dict[type, tuple[type, ...]] = {float: (float, int), complex: (complex, float, int)}


def fields_that_fit(kind: type) -> Check:
    """Return a function that checks the fields of a record type and returns them. It raises an
    error that names an unfit field.
    """
    ordered, defaults = field_names(kind) or (), defaults_of(kind)
    names = frozenset(ordered)
    required = names - defaults.keys()
    rules, maps = _rules(kind, ordered, defaults), _maps(kind, ordered)

    def check(fields: dict[Any, Any]) -> dict[str, Any]:
        if not required <= fields.keys() <= names:
            raise ValueError(_name_problem(fields, names, required))
        for name, make in maps:
            if _is_plain(fields.get(name)):
                fields[name] = make(fields[name])
        for name, fits, hint in rules:
            if name in fields and not fits(fields[name]):
                raise ValueError(f"{name}: {_value_text(fields[name])} is not {_hint_text(hint)}")
        return fields

    return check


def _is_plain(value: Any) -> bool:
    """Return True for a map without its type, or a defaultdict without its factory."""
    kind = type(value)
    return kind is dict or (kind is collections.defaultdict and value.default_factory is None)


def _name_problem(fields: dict[Any, Any], names: frozenset[str], required: frozenset[str]) -> str:
    missing = sorted(required - fields.keys())
    if missing:
        return f"{missing[0]}: the field is missing"
    unknown = next(name for name in fields if name not in names)
    return f"{unknown}: there is no such field: it has {', '.join(sorted(names)) or 'none'}"


def map_maker(hint: Any) -> Callable[[dict[Any, Any]], Any] | None:
    """Return the conversion of a plain map to one of the standard library, or None for any other
    type.
    """
    kind, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is collections.Counter or kind is collections.OrderedDict:
        return cast("Callable[[dict[Any, Any]], Any]", kind)
    if kind is not collections.defaultdict:
        return None
    item = (typing.get_origin(parts[1]) or parts[1]) if len(parts) == 2 else None
    factory = item if isinstance(item, type) and item in FACTORIES else None
    return lambda fields: collections.defaultdict(factory, fields)


def defaults_of(kind: type) -> dict[str, Any]:
    """Return the optional fields with their defaults; MISSING for a default factory."""
    if is_struct(kind):
        import msgspec

        fields: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
        defaults: tuple[Any, ...] = kind.__struct_defaults__  # type: ignore[attr-defined]
        # A keyword-only field without a default has NODEFAULT.
        pairs = zip(fields[len(fields) - len(defaults) :], defaults, strict=True)
        return {name: default for name, default in pairs if default is not msgspec.NODEFAULT}
    if is_dataclass(kind):
        return {field.name: field.default for field in dataclasses.fields(kind) if _has_default(field)}
    return dict(getattr(kind, "_field_defaults", {}))


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return not field.init or field.default is not missing or field.default_factory is not missing


def _maps(kind: type, names: Iterable[str]) -> list[tuple[str, Callable[[dict[Any, Any]], Any]]]:
    """Return the fields that are maps of the standard library, and their conversion from the plain
    maps of other languages.
    """
    hints = _hints(kind)
    found = [(name, map_maker(hints.get(name))) for name in names]
    return [(name, make) for name, make in found if make is not None]


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001
        # A name in an annotation may be known to type checkers only.
        return {}


def _rules(kind: type, names: Iterable[str], defaults: dict[str, Any]) -> list[tuple[str, Fits, Any]]:
    hints, rules = _hints(kind), []
    for name in names:
        fits = _fits(hints[name]) if name in hints else None
        if fits is not None:
            rules.append((name, _or_none(fits) if defaults.get(name, ...) is None else fits, hints[name]))
    return rules


def _or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _fits(hint: Any) -> Fits | None:
    """Return the check of a value against a hint, or None for an uncheckable hint."""
    if hint is Any:
        return None
    if hint is None or hint is type(None):
        return lambda value: value is None
    if isinstance(hint, type) and not typing.get_args(hint):
        return _fits_class(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return lambda value: value in arguments
    if origin is typing.Annotated or origin is typing.ClassVar:
        return _fits(arguments[0])
    if origin is Union or origin is types.UnionType:
        return _fits_any([_fits(argument) for argument in arguments])
    return _fits_class(origin, arguments) if isinstance(origin, type) else None


def _fits_class(kind: type, arguments: tuple[Any, ...] = ()) -> Fits | None:
    if not _supports_isinstance(kind):
        return None
    kinds = _WIDER.get(kind, (kind,))
    if kind is int:
        # In Python a bool is an int; a field for integers refuses it.
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    inner = _inner(kind, arguments)
    if inner is None:
        return lambda value: isinstance(value, kinds)
    return lambda value: isinstance(value, kinds) and inner(value)


def _supports_isinstance(kind: type) -> bool:
    if getattr(kind, "_is_protocol", False):
        return False
    try:
        isinstance(None, kind)
    except Exception:  # noqa: BLE001
        return False
    return True


def _inner(kind: type, arguments: tuple[Any, ...]) -> Fits | None:
    """Return the check of the items of a container."""
    if kind is tuple and (len(arguments) != 2 or arguments[1] is not ...):
        return _fits_places([_fits(argument) for argument in arguments]) if arguments else None
    if kind in (list, set, frozenset, tuple) and arguments:
        item = _fits(arguments[0])
        return None if item is None else _fits_each(item)
    if kind is dict and len(arguments) == 2:
        keys, items = (_fits_each(_fits(argument) or _anything) for argument in arguments)
        return lambda value: keys(value) and items(value.values())
    return None


def _fits_each(item: Fits) -> Fits:
    return lambda value: all(map(item, value))


def _fits_places(places: list[Fits | None]) -> Fits:
    fits = [place or _anything for place in places]
    return lambda value: len(value) == len(fits) and all(fit(item) for fit, item in zip(fits, value, strict=True))


def _fits_any(choices: list[Fits | None]) -> Fits | None:
    known = [choice for choice in choices if choice is not None]
    if len(known) < len(choices):
        return None
    return lambda value: any(choice(value) for choice in known)


def _anything(_: Any) -> bool:
    return True


def _hint_text(hint: Any) -> str:
    return (
        hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
    )


def _value_text(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001
        text = "it"
    return f"{text if len(text) <= 100 else text[:100] + ' ...'} (a {type(value).__name__})"
