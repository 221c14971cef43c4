"""Signatures and docstrings of the methods of clients, for ``help`` and ``inspect.signature``."""

from __future__ import annotations

import inspect
from typing import Any

from tidewire.services.contract import docstrings, type_hints
from tidewire.services.contract.info import MethodInfo
from tidewire.services.contract.methods import Method

_TYPES: dict[Any, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": None,
}
"""Types of JSON Schema in Python."""
UNKNOWN = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)
"""Signature of an unknown method."""


def of_declared(method: Method) -> inspect.Signature:
    """Return the signature of a method of a class, for callers."""
    function = method.function
    hints = function.hints.of
    context = function.signature.context
    parameters = [
        found.replace(annotation=hints.get(found.name, found.annotation))
        for found in list(inspect.signature(function.call).parameters.values())[int(function.owned) :]
        if context is None or found.name != context[0]
    ]
    return inspect.Signature(parameters, return_annotation=hints.get("return", inspect.Signature.empty))


def of_described(method: MethodInfo) -> inspect.Signature:
    """Return the signature of a method that is known by its schemas, for callers."""
    required = method.parameters.get("required", ())
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if name in required else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if name in required else schema.get("default"),
            annotation=_type(schema),
        )
        for name, schema in method.parameters.get("properties", {}).items()
    ]
    parameters.sort(key=lambda found: found.kind)
    return inspect.Signature(parameters, return_annotation=_type(method.result))


def text(name: str, signature: inspect.Signature, method: Method | MethodInfo) -> str:
    """Return the text for ``help``."""
    description = (
        method.description
        if isinstance(method, MethodInfo)
        else docstrings.whole(type_hints.innermost(method.function.call))
    )
    return f"{name}{signature}\n\n{description}".rstrip()


def _type(schema: Any) -> Any:
    return (
        _TYPES.get(schema.get("type"), inspect.Parameter.empty) if isinstance(schema, dict) else inspect.Parameter.empty
    )
