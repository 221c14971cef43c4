"""Value types: the type that a reader wants for events and entries, and the conversion to it, as
for typed parameters of services.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tidewire.errors import InvalidArgument
from tidewire.services.contract.conversion import UNFIT, converter
from tidewire.services.contract.names import short
from tidewire.services.contract.type_hints import text

_OUTER = re.compile(r"(\w+|\[[^\]]*\]): ")
_INNER = re.compile(r" - at `\$(.*)`$")


class ValueType:
    """A type that the values of a stream or bucket are made to.

    Args:
        place: Origin of the values, for errors: ``stream 'orders': event``.
        kind: The type: a dataclass, a msgspec Struct, ``list[int]``, or any other that a parameter
            of a service may have.
    """

    __slots__ = ("_convert", "_exact", "_kind", "_place")

    def __init__(self, place: str, kind: Any) -> None:
        self._place = place
        self._kind = kind
        self._exact, self._convert = converter(kind)

    def fit(self, number: int, value: Any) -> Any:
        """Return a value as the type. Bytes that are not of the type are read as JSON.

        Args:
            number: The sequence of the event, or the revision of the entry.
            value: The value.

        Raises:
            InvalidArgument: if it does not fit; the message names the stream or bucket, the number
                and the field.
        """
        if self._convert is None or value.__class__ is self._exact:
            return value
        try:
            return self._convert(value)
        except UNFIT as error:
            unfit = error
        if isinstance(value, bytes):
            # Other programs write JSON without a header that says so.
            try:
                value = json.loads(value)
                return value if value.__class__ is self._exact else self._convert(value)
            except json.JSONDecodeError:
                pass
            except UNFIT as error:
                unfit = error
        field, why = _parted(str(unfit))
        raise InvalidArgument(
            f"{self._place} {number}: {field}: {why}: it is {short(value)}, and {text(self._kind)} was asked for:"
            " read it without `type=`, or as what was written"
        ) from None


def value_type(place: str, kind: Any) -> ValueType | None:
    """Return the value type of a place; None for no type, which takes values as they came."""
    return None if kind is None else ValueType(place, kind)


def _parted(said: str) -> tuple[str, str]:
    """Return which part of a value an error of a conversion is about, and what it says: ``lines:
    [0]: no - at `$.count` ``.
    """
    field = "value"
    while (outer := _OUTER.match(said)) is not None:
        field += outer[1] if outer[1].startswith("[") else f".{outer[1]}"
        said = said[outer.end() :]
    inner = _INNER.search(said)
    return (field, said) if inner is None else (field + inner[1], said[: inner.start()])
