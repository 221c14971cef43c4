"""Results of a campaign function for workers: their form, and their values in JSON.

It does not use ``values.plans``, whose import would delay the start of workers.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Any


def form_of(kind: type) -> tuple[str, list[str]]:
    """Return the form of results of a class, ``record``, ``mapping`` or ``single``, and the fields
    of a record.
    """
    if issubclass(kind, Mapping):
        return "mapping", []
    if isinstance(fields := getattr(kind, "__dataclass_fields__", None), dict):
        # Without class variables and init variables.
        return "record", [name for name, field in fields.items() if repr(field._field_type) == "_FIELD"]
    for place in ("__struct_fields__", "model_fields"):
        if isinstance(fields := getattr(kind, place, None), (tuple, dict)):
            return "record", list(fields)
    names = getattr(kind, "_fields", None)
    if issubclass(kind, tuple) and isinstance(names, tuple):
        return "record", list(names)
    return "single", []


def plain(value: Any) -> Any:
    """Return the value of an enumeration member or of a NumPy scalar; any other value
    unchanged.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if hasattr(value, "dtype") and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def to_json(value: Any) -> str:
    """Return a value as deterministic JSON, with sorted sets and dicts.

    Raises:
        TypeError: if JSON can't represent a part of it.
    """
    import msgspec

    text = msgspec.json.encode(value, enc_hook=_nested, order="deterministic").decode()
    if "null" in text:
        _refuse_nan(value)
    return text


def _nested(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "model_dump"):
        return value.model_dump()
    raise TypeError(f"{type(value).__name__} is no data: return numbers, text, lists and dicts")


def _refuse_nan(value: Any) -> None:
    """JSON has no NaN: msgspec would write null."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"holds {item!r}, which JSON can't represent: return it in a column of its own")
        if isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            stack.extend(item)
