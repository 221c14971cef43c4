"""``tidewire generate ts``: TypeScript interfaces of the services of a hub, from their JSON
Schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidewire.services.contract.info import MethodInfo, ServiceCommand, ServiceInfo

Schema = Mapping[str, Any]

HEADER = """\
// Made by `tidewire generate ts`. Make it anew when the services change.
/* biome-ignore-all lint: generated */
/* eslint-disable */
"""
_UNKNOWN = "unknown"
_PRIMITIVES = {"number": "number", "boolean": "boolean", "null": "null"}
_VALUES = {
    "date-time": "Date | LocalDateTime",
    "datetime": "Date | LocalDateTime",
    "zoned-datetime": "Date",
    "local-datetime": "LocalDateTime",
    "date": "LocalDate",
    "time": "LocalTime",
    "duration": "Duration",
    "uuid": "UUID",
    "decimal": "Decimal",
    "binary": "Uint8Array",
    "complex": "Complex",
    "array": "NdArray",
}
"""Types of the client for values without a JSON form, by "x-value" or format."""
_CLASSES = {*re.findall(r"\w+", " ".join(_VALUES.values())), "FrozenSet", "Named", "Tuple"} - {"Date", "Uint8Array"}
_SAFE = 2**53 - 1
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
# Reserved words, which are not allowed as parameter names.
_WORDS = """
arguments await break case catch class const continue debugger default delete do else enum eval export extends false
finally for function if implements import in instanceof interface let new null package private protected public return
static super switch this throw true try typeof var void while with yield
"""
_RESERVED = frozenset(_WORDS.split())


def typescript(services: Iterable[ServiceInfo], bigint: bool = True) -> str:
    """Return the text of a module with an interface for each service. It is deterministic. Without
    ``bigint``, integers that may exceed 2^53 have the type ``number``.
    """
    return _Module(bigint).text(sorted(services, key=lambda info: info.name))


class _Module:
    def __init__(self, bigint: bool) -> None:
        self._bigint = bigint
        self._imports: set[str] = set()
        self._types: dict[str, str] = {}
        # Names of types by the text of their schemas: two services may use one name for different
        # types.
        self._names: dict[str, str] = {}
        self._used_names: set[str] = {"Command", "Services", "Date", "Map", "Record", "Set", *_CLASSES}

    def text(self, services: list[ServiceInfo]) -> str:
        names = {info.name: self._unique_name(_pascal(info.name)) for info in services}
        interfaces = [self._service(info, names[info.name]) for info in services]
        members = "".join(f"\t{_key(info.name)}: {names[info.name]};\n" for info in services)
        imports = f'import type {{ {", ".join(sorted(self._imports))} }} from "tidewire";\n'
        types = [text for _, text in sorted(self._types.items())]
        last = '/** The services by their names: `node.client<Services["name"]>("name")`. */\n'
        last += f"export interface Services {{\n{members}}}\n"
        return "\n".join([HEADER, *([imports] if self._imports else []), *types, *interfaces, last])

    def _service(self, info: ServiceInfo, name: str) -> str:
        methods = "".join(self._method(method) for method in info.methods)
        methods += "".join(self._command(command) for command in info.commands)
        parameters = "".join(self._parameters(method) for method in info.methods)
        if parameters:
            methods += f"\t/** Parameters by name, for `named(...)`. */\n\t$parameters?: {{\n{parameters}\t}};\n"
        return f"{_comment(info.description, '')}export interface {name} {{\n{methods}}}\n"

    def _parameters(self, method: MethodInfo) -> str:
        members = self._named_arguments(method)
        if not members and method.parameters.get("additionalProperties") is not False:
            return ""
        return f"\t\t{_key(method.name)}: {' '.join(['{', *members, '}'])};\n"

    def _named_arguments(self, method: MethodInfo | ServiceCommand, only: str = "") -> list[str]:
        """Return the members of an object of named arguments, or only those of one kind."""
        defined = method.parameters.get("$defs", {})
        required = set(method.parameters.get("required", ()))
        members = []
        for name, schema in method.parameters.get("properties", {}).items():
            kind = _kind(schema)
            # Only keyword parameters must be named.
            mark = "" if kind == "keyword" and name in required else "?"
            if kind != "rest" and only in ("", kind):
                members.append(f"{_key(name)}{mark}: {self._argument(schema, defined)};")
        # An index must allow the types of all members.
        if members and method.parameters.get("additionalProperties", False) is not False:
            members.append(f"[name: string]: {_UNKNOWN};")
        return members

    def _method(self, method: MethodInfo) -> str:
        result_type = self._of(method.result, method.result.get("$defs", {}))
        result = f"AsyncIterable<{result_type}>" if method.stream else f"Promise<{result_type}>"
        notes = "".join(f"\n{note}" for note in method.notes)
        comment = _comment(f"{method.description}{notes}".strip(), "\t")
        return f"{comment}\t{_key(method.name)}({self._parameter_list(method)}): {result};\n"

    def _command(self, command: ServiceCommand) -> str:
        self._imports.add("Command")
        parameter_list, result = (
            self._parameter_list(command),
            self._of(command.result, command.result.get("$defs", {})),
        )
        whole = (
            parameter_list.removeprefix("...args: ")
            if parameter_list.startswith("...args: ")
            else f"[{parameter_list}]"
        )
        return f"{_comment(command.description, chr(9))}\t{_key(command.name)}: Command<{whole}, {result}>;\n"

    def _parameter_list(self, method: MethodInfo | ServiceCommand) -> str:
        """Return the parameter list of a method."""
        defined = method.parameters.get("$defs", {})
        required = set(method.parameters.get("required", ()))
        properties = method.parameters.get("properties", {})
        if not properties and method.parameters.get("additionalProperties", True) is True:
            return "...args: unknown[]"
        parameters: list[tuple[str, str]] = []
        rest: list[str] = []
        least, must_name = 0, False
        for name, schema in properties.items():
            kind = _kind(schema)
            if kind == "keyword":
                must_name = must_name or name in required
            elif kind == "rest":
                rest = [f"...{_parameter(name)}: {self._of(schema, defined)}"]
            else:
                # A required parameter must not follow an optional one.
                least += name in required and least == len(parameters)
                parameters.append((_parameter(name), self._argument(schema, defined)))
        if not must_name:
            texts = [f"{name}{'?' if at >= least else ''}: {kind}" for at, (name, kind) in enumerate(parameters)]
            return ", ".join([*texts, *rest])
        named = f"named: {self._imported('Named')}<{{ {' '.join(self._named_arguments(method, 'keyword'))} }}>"
        texts = [f"{name}: {kind}" for name, kind in parameters]
        # Optional parameters and `...` must be last: a union of tuples allows both.
        forms = [[*texts[:count], named] for count in range(least, len(texts))] + [[*texts, *rest, named]]
        if len(forms) == 1 and not rest:
            return ", ".join(forms[0])
        return f"...args: {' | '.join('[' + ', '.join(form) + ']' for form in forms)}"

    def _argument(self, schema: Any, defined: Schema) -> str:
        if isinstance(schema, Mapping) and schema.get("x-stream"):
            return "AsyncIterable<{0}> | Iterable<{0}>".format(self._of(schema.get("items"), defined))
        type_text = self._of(schema, defined)
        return (
            _union([type_text, "null"])
            if isinstance(schema, Mapping) and schema.get("default", ...) is None
            else type_text
        )

    def _of(self, schema: Any, defined: Schema, depth: int = 0, hashable: bool = False) -> str:
        """Return the type of a schema. ``hashable`` is True for items of sets and keys of maps."""
        if not isinstance(schema, Mapping) or depth > 32:
            return "never" if schema is False else _UNKNOWN
        if "$ref" in schema:
            return self._named(str(schema["$ref"]), defined, depth)
        if "const" in schema or "enum" in schema:
            return _union(_literal(value) for value in schema.get("enum", [schema.get("const")]))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return _union(self._of(part, defined, depth + 1, hashable) for part in schema[key])
        if "allOf" in schema:
            return " & ".join(f"({self._of(part, defined, depth + 1)})" for part in schema["allOf"]) or _UNKNOWN
        if schema.get("x-value") in _VALUES:
            return self._imported(_VALUES[schema["x-value"]])
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union(self._of({**schema, "type": one}, defined, depth + 1, hashable) for one in kind)
        if kind == "array":
            return self._array(schema, defined, depth, hashable)
        if kind == "object" or "properties" in schema:
            return self._object(schema, defined, depth)
        if kind == "string":
            form = "binary" if schema.get("contentEncoding") == "base64" else str(schema.get("format"))
            return self._imported(_VALUES.get(form, "string"))
        if kind == "integer":
            bounds = (schema.get(name, schema.get(f"exclusive{name.title()}")) for name in ("minimum", "maximum"))
            is_safe = all(bound is not None and abs(bound) <= _SAFE for bound in bounds)
            return "number | bigint" if self._bigint and not is_safe else "number"
        return _PRIMITIVES.get(str(kind), _UNKNOWN)

    def _imported(self, type_text: str) -> str:
        self._imports.update(_CLASSES.intersection(re.findall(r"\w+", type_text)))
        return type_text

    def _array(self, schema: Schema, defined: Schema, depth: int, hashable: bool) -> str:
        items = schema.get("items")
        if schema.get("x-stream"):
            return f"AsyncIterable<{self._of(items, defined, depth + 1)}>"
        if schema.get("uniqueItems"):
            return self._imported(f"{'FrozenSet' if hashable else 'Set'}<{self._of(items, defined, depth + 1, True)}>")
        if schema.get("x-fields"):
            names, parts = schema["x-fields"], schema["prefixItems"]
            required = names[: schema.get("minItems", 0) - (len(parts) - len(names))]
            fields = dict(zip(names, parts[-len(names) :], strict=False))
            return self._object({"properties": fields, "required": required}, defined, depth)
        first = [self._of(part, defined, depth + 1, hashable) for part in schema.get("prefixItems", ())]
        item = _UNKNOWN if items is False and not first else self._of(items, defined, depth + 1, hashable)
        if hashable:
            parts = [*first, *([] if first and items in (False, None) else [item])]
            return self._imported(f"Tuple<{_union(parts)}>")
        if first:
            rest = [] if items is False or items is None else [f"...({item})[]"]
            return f"[{', '.join(first + rest)}]"
        if items is False or schema.get("maxItems") == 0:
            return "[]"
        return f"{item}[]" if re.fullmatch(r"[\w$]+", item) else f"({item})[]"

    def _object(self, schema: Schema, defined: Schema, depth: int) -> str:
        if schema.get("properties"):
            return "{ " + " ".join(self._members(schema, defined, depth)) + " }"
        others = schema.get("additionalProperties")
        item = _UNKNOWN if others in (None, True) else self._of(others, defined, depth + 1)
        keys = self._of(schema["x-keys"], defined, depth + 1, True) if "x-keys" in schema else "string"
        kinds = {"string" if part.startswith('"') else part for part in re.sub("<.*?>+", "", keys).split(" | ")}
        if kinds == {"string"}:
            return f"Record<string, {item}>"
        # A map without keys, or with text keys only, is a plain object.
        return f"Map<{keys}, {item}> | Record<string, {item if kinds & {'string', _UNKNOWN} else 'never'}>"

    def _members(self, schema: Schema, defined: Schema, depth: int) -> list[str]:
        required = set(schema.get("required", ()))
        return [
            f"{_key(name)}{'' if name in required else '?'}: {self._of(part, defined, depth + 1)};"
            for name, part in schema.get("properties", {}).items()
        ]

    def _named(self, reference: str, defined: Schema, depth: int) -> str:
        key = reference.rpartition("/")[2]
        schema = defined.get(key)
        if not isinstance(schema, Mapping):
            return _UNKNOWN
        identity = json.dumps([key, schema, self._referenced(schema, defined)], sort_keys=True)
        if identity in self._names:
            return self._names[identity]
        name = self._names[identity] = self._unique_name(_pascal(key))
        # A type may refer to itself, so its name is set before its members.
        comment = _comment(str(schema.get("description", "")), "")
        if schema.get("type") == "object" and schema.get("properties"):
            members = "".join(f"\t{member}\n" for member in self._members(schema, defined, depth))
            self._types[name] = f"{comment}export interface {name} {{\n{members}}}\n"
        else:
            self._types[name] = f"{comment}export type {name} = {self._of(schema, defined, depth + 1)};\n"
        return name

    def _referenced(self, schema: Any, defined: Schema) -> dict[str, Any]:
        """Return all schemas that a schema refers to, by reference name."""
        referenced: dict[str, Any] = {}
        pending = [schema]
        while pending:
            for name in re.findall(r'"\$ref": "[^"]*/([^"/]+)"', json.dumps(pending.pop())):
                if name not in referenced:
                    referenced[name] = defined.get(name)
                    pending.append(referenced[name])
        return referenced

    def _unique_name(self, name: str) -> str:
        unique, number = name, 2
        while unique in self._used_names:
            unique, number = f"{name}{number}", number + 1
        self._used_names.add(unique)
        return unique


def _kind(schema: Any) -> str:
    """Return the kind of a parameter: "keyword", "rest", or "" for others."""
    known = schema if isinstance(schema, Mapping) else {}
    return "keyword" if known.get("x-keyword") else "rest" if known.get("x-rest") else ""


def _pascal(name: str) -> str:
    identifier = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9$]+", name) if part)
    return identifier if _NAME.fullmatch(identifier) else f"Service{identifier}"


def _key(name: str) -> str:
    return name if _NAME.fullmatch(name) else json.dumps(name)


def _parameter(name: str) -> str:
    identifier = re.sub(r"[^A-Za-z0-9_$]", "_", name)
    return f"{identifier}_" if identifier in _RESERVED or not _NAME.fullmatch(identifier) else identifier


def _literal(value: Any) -> str:
    if isinstance(value, int) and abs(value) > _SAFE:
        return f"{value}n"
    return json.dumps(value) if value is None or isinstance(value, (str, int, float, bool)) else _UNKNOWN


def _union(parts: Iterable[str]) -> str:
    types = list(dict.fromkeys(parts))
    return _UNKNOWN if not types or _UNKNOWN in types else " | ".join(types)


def _comment(text: str, indent: str) -> str:
    lines = text.replace("*/", "* /").splitlines()
    if len(lines) < 2:
        return f"{indent}/** {lines[0]} */\n" if lines else ""
    return f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"
