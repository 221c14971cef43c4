"""Type names with arguments, such as ``shop:Page[shop:Item]``, of generic pydantic models."""

from __future__ import annotations

import functools
import operator
import re
import types
import typing
from collections.abc import Callable
from typing import Any

_LENGTH_MAX = 1_024
_DEPTH_MAX = 16
_GENERIC = (list, dict, tuple, set, frozenset, type)
_TOKEN = re.compile(r"[^\[\],]+|[\[\],]")

Find = Callable[[str], "type | None"]


def parts_of(model: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """Return a generic model and its arguments for a model like ``Page[int]``; None for others."""
    metadata = vars(model).get("__pydantic_generic_metadata__") or {}
    return (metadata["origin"], metadata["args"]) if metadata.get("origin") else None


def expression(origin: Any, arguments: tuple[Any, ...]) -> str:
    """Return the name of a type with arguments."""
    return f"{_type_text(origin)}[{', '.join(map(_type_text, arguments))}]"


def _type_text(hint: Any) -> str:
    if hint is None or hint is type(None):
        return "None"
    if hint is Ellipsis:
        return "..."
    if hint is Any:
        return "typing:Any"
    if isinstance(hint, types.GenericAlias):
        return expression(hint.__origin__, hint.__args__)
    if isinstance(hint, types.UnionType):
        return f"types:UnionType[{', '.join(map(_type_text, hint.__args__))}]"
    if typing.get_origin(hint) is typing.Union:
        return f"typing:Union[{', '.join(map(_type_text, typing.get_args(hint)))}]"
    if not isinstance(hint, type):
        return repr(hint)
    parts = parts_of(hint)
    return f"{hint.__module__}:{hint.__qualname__}" if parts is None else expression(*parts)


def model_of(text: str, find: Find) -> type | None:
    """Return the generic model of a name with arguments; None if a part of it is unknown here.

    Args:
        text: The name, as written by ``expression``.
        find: Finds a type without arguments.
    """
    if len(text) > _LENGTH_MAX:
        return None
    origin = find(text.partition("[")[0])
    if origin is None or not vars(origin).get("__pydantic_generic_metadata__"):
        return None
    try:
        found = _Parser(text, find).parse()
    # pydantic raises errors of many classes for invalid arguments.
    except Exception:  # noqa: BLE001
        found = None
    if isinstance(found, type) and issubclass(found, origin):
        return found
    # Arguments without a written form, such as literals: find an existing model.
    derived: list[type] = origin.__subclasses__()
    return next((kind for kind in derived if parts_of(kind) and _type_text(kind) == text), None)


class _Parser:
    """Parser of one name. It raises an error of any class for an unknown name."""

    def __init__(self, text: str, find: Find) -> None:
        self._tokens: list[str] = [token.strip() for token in _TOKEN.findall(text)]
        self._find = find
        self._at = 0

    def parse(self) -> Any:
        found = self._type(0)
        if self._at != len(self._tokens):
            raise ValueError("text after the type")
        return found

    def _type(self, depth: int) -> Any:
        name = self._next()
        if depth > _DEPTH_MAX:
            raise ValueError("too deep")
        if self._peek() != "[":
            return self._leaf(name)
        arguments = []
        while self._peek() != "]":
            self._next()
            arguments.append(self._type(depth + 1))
        self._next()
        return self._generic(name, tuple(arguments))

    def _leaf(self, name: str) -> Any:
        if name in _LEAVES:
            return _LEAVES[name]
        found = self._find(name)
        if found is None:
            raise ValueError(name)
        return found

    def _generic(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "types:UnionType":
            return functools.reduce(operator.or_, arguments)
        if name == "typing:Union":
            return typing.Union[arguments]  # noqa: UP007
        origin = self._leaf(name)
        if origin not in _GENERIC and not vars(origin).get("__pydantic_generic_metadata__"):
            raise ValueError(name)
        return origin[arguments if len(arguments) != 1 else arguments[0]]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        return token


_LEAVES: dict[str, Any] = {"None": None, "...": ..., "typing:Any": Any}
