"""Records and enums of other processes, decoded as their type if this process has imported it."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

from tidewire.errors import WireError
from tidewire.values.plans import FACTORIES, MAPS, field_names, is_dataclass, is_model, names_of, type_name
from tidewire.values.record_check import fields_that_fit
from tidewire.values.type_expressions import model_of

Build = Callable[[dict[str, Any]], Any]


class FieldMismatch(WireError):
    """Error of a record or enum that does not fit its type in this process.

    Attributes:
        problem: Description of the mismatch.
        path: Its path in the value: the types of the containers and the positions in them,
            outermost first. The decoder adds them.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"data: {problem}")
        self.problem = problem
        self.path: list[tuple[type, Any]] = []


def record(name: Any, fields: dict[Any, Any]) -> Any:
    """Build a record from its fields, or return the fields of an unknown type."""
    build = _build_of(name)
    if build is None:
        return fields
    try:
        return build(fields)
    except Exception as error:
        raise FieldMismatch(f"not a {name}: {error}") from error


def _build_of(name: Any) -> Build | None:
    if name in _MAP_BUILDERS:
        return _MAP_BUILDERS[name]
    generic = isinstance(name, str) and name.endswith("]")
    kind = model_of(name, find) if generic else find(name)
    return None if kind is None else _builder(kind)


def member(name: Any, value: Any) -> Any:
    """Return the member of an enum by its value, or the value for an unknown enum."""
    kind = find(name)
    if kind is None or not issubclass(kind, enum.Enum):
        return value
    try:
        return kind(value)
    except Exception as error:
        raise FieldMismatch(f"not a {name}: {error}") from error


def find(name: Any) -> type | None:
    """Return the type of a name, if its module is imported here.

    Reads dictionaries only: attribute access may run code of a module or a class, and import
    anything.
    """
    if not isinstance(name, str):
        raise WireError(f"data: {name!r} is not the name of a type")
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        if not isinstance(found, (ModuleType, type)):
            return None
        found = _names_in(found).get(part)
    return found if isinstance(found, type) else None


def _names_in(owner: ModuleType | type) -> Mapping[str, Any]:
    if isinstance(owner, type):
        return names_of(owner)
    names: Mapping[str, Any] = object.__getattribute__(owner, "__dict__")
    return names


@lru_cache(maxsize=1_024)
def _builder(kind: type) -> Build | None:
    if is_model(kind):
        return _model_builder(kind)
    if field_names(kind) is None:
        return None
    check = fields_that_fit(kind)
    assigned, has_constructor = _assigned(kind)
    if not assigned:
        return lambda fields: kind(**check(fields))
    return lambda fields: _assign(kind, check(fields), assigned, has_constructor)


def _assigned(kind: type) -> tuple[frozenset[str], bool]:
    """Return the fields that are no constructor parameters, and True if there is a constructor for
    the others.
    """
    if not is_dataclass(kind):
        return frozenset(), True
    fields = dataclasses.fields(kind)
    if not kind.__dataclass_params__.init:  # type: ignore[attr-defined]
        return frozenset(field.name for field in fields), False
    return frozenset(field.name for field in fields if not field.init), True


def _assign(kind: type, fields: dict[str, Any], assigned: frozenset[str], has_constructor: bool) -> Any:
    arguments = {name: value for name, value in fields.items() if name not in assigned}
    instance = kind(**arguments) if has_constructor else object.__new__(kind)
    for name in assigned & fields.keys():
        # Frozen data classes refuse ``setattr``.
        object.__setattr__(instance, name, fields[name])
    return instance


def _model_builder(kind: Any) -> Build:
    # pydantic before 2.11 has no such arguments, and accepts names only if the model allows them.
    by_name = "by_name" in inspect.signature(kind.model_validate).parameters
    options = {"by_alias": False, "by_name": True} if by_name else {}
    if getattr(kind, "__pydantic_root_model__", False):
        return lambda fields: kind.model_validate(fields["root"])
    return lambda fields: kind.model_validate(fields, **options)


def _map_builders() -> dict[Any, Build]:
    builders: dict[Any, Build] = {type_name(kind): kind for kind in MAPS}
    name = type_name(defaultdict)
    builders[name] = partial(defaultdict, None)
    for factory in FACTORIES:
        builders[f"{name}[{type_name(factory)}]"] = partial(defaultdict, factory)
    return builders


_MAP_BUILDERS = _map_builders()
