"""Code and the page of what homes of streams can and can't do, from `spec/capabilities.toml`."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tables import Row, check_keys, demand, demand_unique, read_rows

WIDTH, PROSE_WIDTH = 120, 100
HOMES = ("folder", "nats")


def read_capabilities(path: Path) -> list[Row]:
    rows = read_rows(path, "capability")
    for row in rows:
        check_keys(path, row, {"name", "meaning"}, {*HOMES, "since"})
        demand(re.fullmatch(r"[a-z]+(_[a-z]+)*", row["name"]) is not None, path, row, "name must be snake_case")
        numbers = re.fullmatch(r"\d+\.\d+\.\d+", row.get("since", "0.0.0"))
        demand(numbers is not None, path, row, "since must be a version such as 2.12.0")
        demand(not {"nats", "since"} <= set(row), path, row, "nats says that no server can, since that some can")
    demand_unique(path, rows, "name")
    return rows


def rust_capabilities(rows: list[Row], text: str, origin: str) -> str:
    """The enum and the declarations, in the form of a template."""
    filled = text.format(
        origin=origin,
        variants="".join(f'{comment(row["meaning"])}    {variant(row)} = "{row["name"]}",\n' for row in rows),
        folder=reasons(rows, "FOLDER_LACKS", "folder"),
        nats=reasons(rows, "NATS_LACKS", "nats"),
        since=since(rows),
    )
    return filled.rstrip() + "\n"


def comment(meaning: str) -> str:
    lines = textwrap.wrap(meaning, PROSE_WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    return "".join(f"    /// {line}\n" for line in lines)


def variant(row: Row) -> str:
    return "".join(word.capitalize() for word in row["name"].split("_"))


def reasons(rows: list[Row], name: str, home: str) -> str:
    entries = [(f"Capability::{variant(row)}", rust_text(row[home])) for row in rows if home in row]
    return constant(name, "&[(Capability, &str)]", entries)


def since(rows: list[Row]) -> str:
    entries = [(f"Capability::{variant(row)}", *row["since"].split(".")) for row in rows if "since" in row]
    return constant("NATS_SINCE", "&[(Capability, u32, u32, u32)]", entries)


def constant(name: str, kind: str, entries: list[tuple[str, ...]]) -> str:
    items = [f"({', '.join(entry)})" for entry in entries]
    line = f"pub const {name}: {kind} = &[{', '.join(items)}];\n"
    if len(line) <= WIDTH + 1:
        return line
    left = f"pub const {name}: {kind} =\n    &["
    line = f"{left}{', '.join(items)}];\n"
    if len(line.splitlines()[1]) <= WIDTH:
        return line
    lines = "".join(rust_entry(entry) for entry in entries)
    return f"pub const {name}: {kind} = &[\n{lines}];\n"


def rust_entry(entry: tuple[str, ...]) -> str:
    line = f"    ({', '.join(entry)}),\n"
    if len(line) <= WIDTH + 1:
        return line
    return "    (\n" + "".join(f"        {part},\n" for part in entry) + "    ),\n"


def rust_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def cells(rows: list[Row]) -> list[tuple[str, ...]]:
    """The rows of the page: name, meaning, data folder, NATS."""
    return [(f"`{row['name']}`", row["meaning"], *(cell(row, home) for home in HOMES)) for row in rows]


def cell(row: Row, home: str) -> str:
    if home in row:
        return f"no: {row[home]}"
    return f"nats-server {row['since']} or newer" if home == "nats" and "since" in row else "yes"
