"""Results of remote calls for a typed client: records of the annotated type, even if the server
uses another name.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable
from typing import Any

from tidewire.services.contract.conversion import UNFIT, converter
from tidewire.values.plans import field_names, is_model

Convert = Callable[[Any], Any]


def result_of(hint: Any) -> Convert | None:
    """Return the converter of results to a type, or None for a type without records. It returns an
    unfit result unchanged.
    """
    if not _has_records(hint):
        return None
    exact, convert = converter(hint)
    if convert is None:
        return None

    def convert_result(value: Any) -> Any:
        if value.__class__ is exact:
            return value
        try:
            return convert(value)
        # Local results are not checked either.
        except UNFIT:
            return value

    return convert_result


def _has_records(hint: Any) -> bool:
    if isinstance(hint, type) and not typing.get_args(hint):
        is_record = typing.is_typeddict(hint) or is_model(hint) or issubclass(hint, enum.Enum)
        return is_record or field_names(hint) is not None
    return any(_has_records(part) for part in typing.get_args(hint))
