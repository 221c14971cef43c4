"""Value types of events and entries: conversion of values to the type of a reader, as for typed
parameters of services.
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
    """Type to which the values of a stream or bucket are converted.

    Args:
        source: Origin of the values, for errors: ``stream 'orders': event``.
        kind: The type: a dataclass, a msgspec Struct, ``list[int]``, or any other type of service
            parameters.
    """

    __slots__ = ("_convert", "_exact", "_kind", "_source")

    def __init__(self, source: str, kind: Any) -> None:
        self._source = source
        self._kind = kind
        self._exact, self._convert = converter(kind)

    def fit(self, number: int, value: Any) -> Any:
        """Convert a value to the type. Bytes that do not fit it are parsed as JSON.

        Args:
            number: The sequence of the event, or the revision of the entry.
            value: The value.

        Raises:
            InvalidArgument: if the value does not fit. The message names the stream or bucket, the
                number and the field.
        """
        if self._convert is None or value.__class__ is self._exact:
            return value
        try:
            return self._convert(value)
        except UNFIT as error:
            unfit = error
        if isinstance(value, bytes):
            # Other programs write JSON without a content type.
            try:
                value = json.loads(value)
                return value if value.__class__ is self._exact else self._convert(value)
            except json.JSONDecodeError:
                pass
            except UNFIT as error:
                unfit = error
        field, reason = _field_and_reason(str(unfit))
        raise InvalidArgument(
            f"{self._source} {number}: {field}: {reason}: it is {short(value)}, and {text(self._kind)} was requested:"
            " read it without `type=`, or with the type that was written"
        ) from None


def value_type(source: str, kind: Any) -> ValueType | None:
    """Return the value type of a source; None without a type, which leaves values unchanged."""
    return None if kind is None else ValueType(source, kind)


def _field_and_reason(message: str) -> tuple[str, str]:
    """Return the field and the reason of a conversion error such as ``lines: [0]: no - at
    `$.count` ``.
    """
    field = "value"
    while (outer := _OUTER.match(message)) is not None:
        field += outer[1] if outer[1].startswith("[") else f".{outer[1]}"
        message = message[outer.end() :]
    inner = _INNER.search(message)
    return (field, message) if inner is None else (field + inner[1], message[: inner.start()])
