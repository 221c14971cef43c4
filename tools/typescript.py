"""Writes the tables of `spec/` as TypeScript, for the client in `js/packages/client`."""

from __future__ import annotations

import json
import re
import textwrap

from tables import Row

WIDTH, PROSE_WIDTH = 120, 100
USED_LIMITS = (
    "call_headers",
    "consumer_in_flight",
    "ask_timeout_ms",
    "link_backoff_max_ms",
    "link_backoff_ms",
    "link_chunk_bytes",
    "link_compressed_bytes",
    "link_fields",
    "link_frame_bytes",
    "link_greeting_ms",
    "link_head_bytes",
    "link_heartbeat_ms",
    "link_in_flight",
    "link_queue_bytes",
    "link_resends",
    "link_window_bytes",
    "name_bytes",
    "payload_bytes",
    "remote_lease_ms",
    "remote_objects",
    "service_concurrency",
    "service_streams",
    "service_waiting",
    "stop_timeout_ms",
    "stream_credit",
    "subject_bytes",
    "subject_tokens",
    "subscription_capacity",
    "value_depth",
    "value_inline_bytes",
)
"""The limits that the client knows; the others are those of engines and hubs."""

USED_MAXIMA = ("consumer_in_flight",)
"""The limits that a call may set, and whose greatest value the client refuses to exceed."""

TYPES = {
    "int | None": "number | null",
    "str | None": "string | null",
    "list[str]": "readonly string[]",
    "str": "string",
}
EMPTY = {"int | None": "null", "str | None": "null", "list[str]": "[]", "str": '""'}


def typescript_limits(rows: list[Row], origin: str) -> str:
    known = {row["name"]: row for row in rows}
    missing = [name for name in USED_LIMITS if name not in known]
    if missing:
        raise SystemExit(f"tools/typescript.py: USED_LIMITS: {missing} are not in spec/limits.toml")
    limits = "".join(_limit(known[name]) for name in sorted(USED_LIMITS))
    return f"// {origin}\n// docs/reference/limits.md has the unit and the meaning of each limit.\n\n{limits}"


def _limit(row: Row) -> str:
    name = row["name"].upper()
    most = f"export const {name}_MAX = {_grouped(row['max'])};\n" if row["name"] in USED_MAXIMA else ""
    return f"export const {name} = {_grouped(row['default'])};\n{most}"


def typescript_errors(rows: list[Row], origin: str) -> str:
    parts = [f'// {origin}\nimport {{ TidewireError }} from "../error.js";\n']
    parts.extend(_error(row) for row in rows)
    return "\n".join(parts)


def typescript_error_table(rows: list[Row], origin: str) -> str:
    names = sorted(row["name"] for row in rows)
    imported = "".join(f"\t{name},\n" for name in names)
    known = "".join(f"\t[{row['number']}, {row['name']}],\n" for row in rows)
    return (
        f'// {origin}\nimport type {{ TidewireError }} from "../error.js";\n'
        f'import {{\n{imported}}} from "./errors.js";\n\n'
        "/** The classes by the numbers that travel on the wire. */\n"
        f"export const ERRORS: ReadonlyMap<number, new (message?: string) => TidewireError> = new Map([\n{known}]);\n"
    )


def _error(row: Row) -> str:
    lines = [
        f"export class {row['name']} extends {row.get('parent', 'TidewireError')} {{",
        f'\toverride readonly name: string = "{row["name"]}";',
    ]
    # The base class makes the code of a name.
    if row["code"] != re.sub(r"\B([A-Z])", r"_\1", row["name"]).lower():
        lines.append(f'\toverride get code(): string {{\n\t\treturn "{row["code"]}";\n\t}}')
    # No error is retryable but those that say so.
    if row["retryable"]:
        lines.append("\toverride readonly retryable: boolean = true;")
    for field in row.get("fields", []):
        # Nothing that only holds in the process of the handler is sent over links.
        if field.get("local") or field["name"] == "message":
            continue
        # Every error has the traceback of the other side, and its base class says so.
        if field["name"] == "remote_traceback":
            continue
        lines.append(f"\t/** {field['meaning']} */")
        lines.append(f"\t{_camel(field['name'])}: {TYPES[field['type']]} = {EMPTY[field['type']]};")
    return _comment([row["meaning"], row["fix"]]) + "\n".join(lines) + "\n}\n"


def _comment(paragraphs: list[str]) -> str:
    lines = [line for text in paragraphs for line in textwrap.wrap(text, PROSE_WIDTH - 3, break_long_words=False)]
    return "/**\n" + "".join(f" * {line}\n" for line in lines) + " */\n"


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def _grouped(number: int) -> str:
    return f"{number:_}" if number >= 10_000 else json.dumps(number)
