"""JSON Schema (2020-12) of parameters and results, from type hints."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from tidewire.services.caller.argument_check import Parameter, Signature
from tidewire.services.contract import docstrings
from tidewire.services.contract.conversion import closed_records
from tidewire.services.contract.schema_keywords import mark
from tidewire.services.contract.type_hints import TypeHints, stream_item, text

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"
# Placeholder for a type without a schema: msgspec ignores an empty one.
_UNKNOWN = {"x-unknown": True}
# Types of values without a form in JSON.
_VALUES = {"complex": "complex", "ndarray": "array"}

Schema = dict[str, Any]


class Writer:
    """Writer of the schemas of one method. Shared types are written once, under "$defs" of each
    schema.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []

    def parameters(self, signature: Signature, hints: TypeHints, function: Any) -> Schema:
        """Return the schema of the arguments, as an object by their names."""
        described = docstrings.arguments(function)
        defined: Schema = {}
        properties = {p.name: self._parameter(p, described, defined) for p in signature.parameters}
        for parameter in signature.parameters[len(signature.positional) :]:
            properties[parameter.name]["x-keyword"] = True
        if signature.rest is not None:
            item = self._of(signature.rest.hint, signature.rest.name, defined)
            properties[signature.rest.name] = {"type": "array", "items": item, "x-rest": True}
        others: Any = signature.open
        if signature.rest_named is not None:
            others = self._of(signature.rest_named.hint, signature.rest_named.name, defined)
        root: Schema = {"$schema": DIALECT, "type": "object", "properties": properties, "additionalProperties": others}
        required = [parameter.name for parameter in signature.parameters if parameter.required]
        if required:
            root["required"] = required
        self.notes.extend(f"{name}: {hint} could not be found" for name, hint in hints.unresolved.items())
        return _with_defined(root, defined)

    def result(self, hint: Any) -> Schema:
        """Return the schema of a result; of one item, if it is a stream."""
        return self.value(stream_item(hint)[1], "return")

    def value(self, hint: Any, name: str) -> Schema:
        """Return the schema of a value."""
        defined: Schema = {}
        return _with_defined(self._of(hint, name, defined), defined)

    def _parameter(self, parameter: Parameter, described: Mapping[str, str], defined: Schema) -> Schema:
        schema = self._of(parameter.hint, parameter.name, defined)
        if parameter.name in described and "description" not in schema:
            schema["description"] = described[parameter.name]
        if parameter.default is not inspect.Parameter.empty:
            default = _plain(parameter.default)
            if default is not ...:
                schema["default"] = default
        return schema

    def _of(self, hint: Any, name: str, defined: Schema) -> Schema:
        streams, item = stream_item(hint)
        if streams:
            return {"type": "array", "items": self._of(item, name, defined), "x-stream": True}
        description = _description(hint)
        schema = self._of_type(hint, name, defined)
        return {**schema, "description": description} if description and "description" not in schema else schema

    def _of_type(self, hint: Any, name: str, defined: Schema) -> Schema:
        if hint is Any or hint is object:
            return {}
        found: Schema = {}

        def custom(kind: Any) -> Schema:
            return self._custom(kind, name, found)

        try:
            (schema,), parts = msgspec.json.schema_components([hint], schema_hook=custom, ref_template=_REF)
        # Types that msgspec does not know raise errors of any class.
        except Exception:  # noqa: BLE001
            return self._alternatives(hint, name, defined)
        for kind in closed_records(hint, set()):
            if kind.__name__ in parts:
                parts[kind.__name__].setdefault("additionalProperties", False)
        mark(hint, schema, parts)
        defined.update(_without_marks({**found, **parts}))
        return dict(_without_marks(schema))

    def _custom(self, kind: Any, name: str, defined: Schema) -> Schema:
        if hasattr(kind, "model_json_schema"):
            schema: Schema = kind.model_json_schema(ref_template="#/$defs/{model}")
            defined.update(schema.pop("$defs", {}))
            return schema
        streams, item = stream_item(kind)
        if streams:
            return {"type": "array", "items": self._of(item, name, defined), "x-stream": True}
        if kind is not object:
            self.notes.append(f"{name}: {text(kind)} has no schema")
        return {"x-value": _VALUES[text(kind)]} if text(kind) in _VALUES else dict(_UNKNOWN)

    def _alternatives(self, hint: Any, name: str, defined: Schema) -> Schema:
        """Return the schema of a union whose members msgspec can't tell apart."""
        while typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            return {"anyOf": [self._of(part, name, defined) for part in typing.get_args(hint)]}
        self.notes.append(f"{name}: {text(hint)} has no schema")
        return {}


def _without_marks(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {} if schema == _UNKNOWN else {key: _without_marks(value) for key, value in schema.items()}
    return [_without_marks(value) for value in schema] if isinstance(schema, list) else schema


def _description(hint: Any) -> str | None:
    """Return the text that describes a type in ``Annotated[type, "text"]``."""
    if typing.get_origin(hint) is not typing.Annotated:
        return None
    return next((part for part in typing.get_args(hint)[1:] if isinstance(part, str)), None)


def _with_defined(schema: Schema, defined: Schema) -> Schema:
    return {**schema, "$defs": defined} if defined else schema


def _plain(value: Any) -> Any:
    """Return a default as plain data, or ``...`` if it can't be converted."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ...
