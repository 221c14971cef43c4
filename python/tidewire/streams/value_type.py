"""Value types: the type that a reader wants for events, and the conversion to it, as for typed
parameters of services.
"""

from __future__ import annotations

import re
from typing import Any

from tidewire.errors import InvalidArgument
from tidewire.services.conversion import UNFIT, converter
from tidewire.services.names import short
from tidewire.services.type_hints import text

_OUTER = re.compile(r"(\w+|\[[^\]]*\]): ")
_INNER = re.compile(r" - at `\$(.*)`$")


class ValueType:
    """A type that the values of a stream's events are made to.

    Args:
        stream: The stream, for errors.
        kind: The type: a dataclass, a msgspec Struct, ``list[int]``, or any other that a parameter
            of a service may have.
    """

    __slots__ = ("_convert", "_exact", "_kind", "_stream")

    def __init__(self, stream: str, kind: Any) -> None:
        self._stream = stream
        self._kind = kind
        self._exact, self._convert = converter(kind)

    def fit(self, sequence: int, value: Any) -> Any:
        """Return the value of an event as the type.

        Raises:
            InvalidArgument: if it does not fit; the message names the stream, the event and the
                field.
        """
        if self._convert is None or value.__class__ is self._exact:
            return value
        try:
            return self._convert(value)
        except UNFIT as error:
            field, why = _parted(str(error))
            raise InvalidArgument(
                f"stream {self._stream!r}: event {sequence}: {field}: {why}: it is {short(value)}, and {text(self._kind)} was asked for:"
                " read it without `type=`, or as what was published"
            ) from None


def shape_of(stream: str, kind: Any) -> ValueType | None:
    """Return the shape of a type; None for none, which takes values as they came."""
    return None if kind is None else ValueType(stream, kind)


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
