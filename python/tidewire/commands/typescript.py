"""``tidewire generate ts``: TypeScript interfaces of the services of a hub, from their JSON
Schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidewire.services.contract.info import MethodInfo, ServiceInfo

Schema = Mapping[str, Any]

HEADER = """\
// Made by `tidewire generate ts`. Make it anew when the services change.
/* biome-ignore-all lint: generated */
/* eslint-disable */
"""
_UNKNOWN = "unknown"
_PRIMITIVES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_FORMATS = {
    "date-time": "Date",
    "date": "LocalDate",
    "time": "LocalTime",
    "duration": "Duration",
    "uuid": "UUID",
    "decimal": "Decimal",
}
"""What the client makes of texts of a format; all but Date are classes of its package."""
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
# Words that no parameter may be called.
_WORDS = """
arguments await break case catch class const continue debugger default delete do else enum eval export extends false
finally for function if implements import in instanceof interface let new null package private protected public return
static super switch this throw true try typeof var void while with yield
"""
_RESERVED = frozenset(_WORDS.split())


def typescript(services: Iterable[ServiceInfo]) -> str:
    """Return the text of a module with an interface for each service. The same services give the
    same text.
    """
    return _Module().text(sorted(services, key=lambda info: info.name))


class _Module:
    def __init__(self) -> None:
        self._imports: set[str] = set()
        self._types: dict[str, str] = {}
        # The name of a type by the text of its schema: two services may mean different things by
        # one name.
        self._names: dict[str, str] = {}
        self._taken: set[str] = {"Services", *_FORMATS.values()}

    def text(self, services: list[ServiceInfo]) -> str:
        names = {info.name: self._free(_pascal(info.name)) for info in services}
        interfaces = [self._service(info, names[info.name]) for info in services]
        members = "".join(f"\t{_key(info.name)}: {names[info.name]};\n" for info in services)
        parts = [HEADER]
        if self._imports:
            parts.append(f'import type {{ {", ".join(sorted(self._imports))} }} from "tidewire";\n')
        parts += [self._types[name] for name in sorted(self._types)]
        parts += interfaces
        parts.append(
            f'/** The services by their names: `node.client<Services["name"]>("name")`. */\nexport interface Services {{\n{members}}}\n'
        )
        return "\n".join(parts)

    def _service(self, info: ServiceInfo, name: str) -> str:
        methods = "".join(self._method(method) for method in info.methods)
        parameters = "".join(self._parameters(method) for method in info.methods)
        if parameters:
            methods += f"\t/** Parameters by name, for `named(...)`. */\n\t$parameters?: {{\n{parameters}\t}};\n"
        return f"{_comment(info.description, '')}export interface {name} {{\n{methods}}}\n"

    def _parameters(self, method: MethodInfo) -> str:
        properties = method.parameters.get("properties", {})
        defined = method.parameters.get("$defs", {})
        members = [f"{_key(name)}?: {self._argument(schema, defined)};" for name, schema in properties.items()]
        return f"\t\t{_key(method.name)}: {{ {' '.join(members)} }};\n" if members else ""

    def _method(self, method: MethodInfo) -> str:
        defined = method.parameters.get("$defs", {})
        required = set(method.parameters.get("required", ()))
        parameters = []
        optional = False
        for name, schema in method.parameters.get("properties", {}).items():
            # After a parameter that may be left out none may be demanded.
            optional = optional or name not in required
            parameters.append(f"{_parameter(name)}{'?' if optional else ''}: {self._argument(schema, defined)}")
        takes = ", ".join(parameters) if method.parameters else "...args: unknown[]"
        gives = self._of(method.result, method.result.get("$defs", {}))
        result = f"AsyncIterable<{gives}>" if method.stream else f"Promise<{gives}>"
        notes = "".join(f"\n{note}" for note in method.notes)
        comment = _comment(f"{method.description}{notes}".strip(), "\t")
        return f"{comment}\t{_key(method.name)}({takes}): {result};\n"

    def _argument(self, schema: Any, defined: Schema) -> str:
        if isinstance(schema, Mapping) and schema.get("x-stream"):
            item = self._of(schema.get("items"), defined)
            return f"AsyncIterable<{item}> | Iterable<{item}>"
        return self._of(schema, defined)

    def _of(self, schema: Any, defined: Schema, depth: int = 0) -> str:
        if not isinstance(schema, Mapping) or depth > 32:
            return "never" if schema is False else _UNKNOWN
        if "$ref" in schema:
            return self._named(str(schema["$ref"]), defined, depth)
        if "const" in schema:
            return _literal(schema["const"])
        if "enum" in schema:
            return _union(_literal(value) for value in schema["enum"])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return _union(self._of(part, defined, depth + 1) for part in schema[key])
        if "allOf" in schema:
            return " & ".join(f"({self._of(part, defined, depth + 1)})" for part in schema["allOf"]) or _UNKNOWN
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union(self._of({**schema, "type": one}, defined, depth + 1) for one in kind)
        if kind == "array":
            return self._array(schema, defined, depth)
        if kind == "object" or "properties" in schema:
            return self._object(schema, defined, depth)
        if kind == "string":
            return self._string(schema)
        return _PRIMITIVES.get(str(kind), _UNKNOWN)

    def _string(self, schema: Schema) -> str:
        if schema.get("contentEncoding") == "base64" or schema.get("format") == "binary":
            return "Uint8Array"
        found = _FORMATS.get(str(schema.get("format")))
        if found is None:
            return "string"
        if found != "Date":
            self._imports.add(found)
        return found

    def _array(self, schema: Schema, defined: Schema, depth: int) -> str:
        if schema.get("x-stream"):
            return f"AsyncIterable<{self._of(schema.get('items'), defined, depth + 1)}>"
        first = [self._of(part, defined, depth + 1) for part in schema.get("prefixItems", ())]
        items = schema.get("items")
        if first:
            rest = [] if items is False or items is None else [f"...({self._of(items, defined, depth + 1)})[]"]
            return f"[{', '.join(first + rest)}]"
        if items is False:
            return "[]"
        item = self._of(items, defined, depth + 1)
        return f"{item}[]" if re.fullmatch(r"[\w$]+", item) else f"({item})[]"

    def _object(self, schema: Schema, defined: Schema, depth: int) -> str:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        if not properties:
            return f"Record<string, {_UNKNOWN if others in (None, True) else self._of(others, defined, depth + 1)}>"
        return "{ " + " ".join(self._members(schema, defined, depth)) + " }"

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
        meant = json.dumps([key, schema, self._reached(schema, defined)], sort_keys=True)
        known = self._names.get(meant)
        if known is not None:
            return known
        name = self._names[meant] = self._free(_pascal(key))
        # It may refer to itself, so its name is known before its parts.
        comment = _comment(str(schema.get("description", "")), "")
        if schema.get("type") == "object" and schema.get("properties"):
            members = "".join(f"\t{member}\n" for member in self._members(schema, defined, depth))
            self._types[name] = f"{comment}export interface {name} {{\n{members}}}\n"
        else:
            self._types[name] = f"{comment}export type {name} = {self._of(schema, defined, depth + 1)};\n"
        return name

    def _reached(self, schema: Any, defined: Schema) -> dict[str, Any]:
        """Return all that a schema refers to, by the names that it uses for it."""
        reached: dict[str, Any] = {}
        left = [schema]
        while left:
            for name in re.findall(r'"\$ref": "[^"]*/([^"/]+)"', json.dumps(left.pop())):
                if name not in reached:
                    reached[name] = defined.get(name)
                    left.append(reached[name])
        return reached

    def _free(self, name: str) -> str:
        free, number = name, 2
        while free in self._taken:
            free, number = f"{name}{number}", number + 1
        self._taken.add(free)
        return free


def _pascal(name: str) -> str:
    made = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9$]+", name) if part)
    return made if _NAME.fullmatch(made) else f"Service{made}"


def _key(name: str) -> str:
    return name if _NAME.fullmatch(name) else json.dumps(name)


def _parameter(name: str) -> str:
    made = re.sub(r"[^A-Za-z0-9_$]", "_", name)
    return f"{made}_" if made in _RESERVED or not _NAME.fullmatch(made) else made


def _literal(value: Any) -> str:
    return json.dumps(value) if value is None or isinstance(value, (str, int, float, bool)) else _UNKNOWN


def _union(parts: Iterable[str]) -> str:
    found = list(dict.fromkeys(parts))
    return _UNKNOWN if not found or _UNKNOWN in found else " | ".join(found)


def _comment(text: str, indent: str) -> str:
    lines = text.replace("*/", "* /").splitlines()
    if not lines:
        return ""
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    return f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"
