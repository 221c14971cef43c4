"""Errors of unknown keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidewire.errors import InvalidArgument


def refuse_unknown(unknown: Mapping[str, Any], function: Callable[..., Any], title: str = "") -> None:
    """Refuse the options of a ``**`` parameter.

    Raises:
        InvalidArgument: if there is one; the error suggests the nearest parameter.
    """
    if unknown:
        import inspect

        from tidewire.services.contract.names import nearest

        name, value = next(iter(unknown.items()))
        parameters = inspect.signature(function).parameters.values()
        known = [one.name for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)]
        raise InvalidArgument(
            f"{name}: {value!r:.100} is not allowed: {title or function.__name__} has no such option: {nearest(name, known)}"
        )
