"""Reads and checks the tables in `spec/`. A mistake in them ends the program with the row and the
fix.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

Row = dict[str, Any]

LIMIT_KEYS = {"name", "unit", "default", "min", "max", "set_by", "meaning", "overflow"}
ERROR_KEYS = {"code", "number", "name", "retryable", "meaning", "fix"}
ERROR_OPTIONS = {"in_pages", "parent", "also", "fields", "status"}
MEANING_WIDTH = 100
SETTERS = {
    "config": "configuration",
    "dispatcher": "configuration, per dispatcher",
    "broker": "configuration, table broker",
    "links": "configuration, table links",
    "services": "configuration, table services",
    "spawn": "spawn",
    "supervision": "supervision of an actor",
    "call": "call",
    "nats": "URL of NATS",
    "serve": "serve",
    "http": "`--http-set`, `listen`",
    "fixed": "nobody: fixed",
}

TABLES = ("broker", "links", "services")
"""Tables of a configuration, as limits say in ``set_by`` that they are keys of them."""


def read_limits(path: Path) -> list[Row]:
    rows = read_rows(path, "limit")
    for row in rows:
        check_keys(path, row, LIMIT_KEYS, set())
        demand(row["min"] <= row["default"] <= row["max"], path, row, "default must lie between min and max")
        unknown = set(row["set_by"]) - set(SETTERS)
        demand(not unknown, path, row, f"set_by: {sorted(unknown)} is not one of {sorted(SETTERS)}")
    demand_unique(path, rows, "name")
    return rows


def read_errors(path: Path) -> list[Row]:
    rows = read_rows(path, "error")
    for row in rows:
        check_keys(path, row, ERROR_KEYS, ERROR_OPTIONS)
        row.setdefault("status", 500)
        demand(400 <= row["status"] <= 599, path, row, "status must be 400 to 599")
        demand(re.fullmatch(r"[a-z]+(_[a-z]+)*", row["code"]) is not None, path, row, "code must be snake_case")
        demand(len(row["meaning"]) <= MEANING_WIDTH, path, row, f"meaning must have at most {MEANING_WIDTH} characters")
        parents = [other["name"] for other in rows[: rows.index(row)]]
        demand(row.get("parent") in [None, *parents], path, row, "parent must be an error further up in the table")
    for key in ("code", "number", "name"):
        demand_unique(path, rows, key)
    return rows


def read_rows(path: Path, kind: str) -> list[Row]:
    with path.open("rb") as file:
        rows: list[Row] = tomllib.load(file)[kind]
    return rows


def check_keys(path: Path, row: Row, needed: set[str], allowed: set[str]) -> None:
    demand(needed <= set(row), path, row, f"missing: {sorted(needed - set(row))}")
    unknown = set(row) - needed - allowed
    demand(not unknown, path, row, f"unknown: {sorted(unknown)}")


def demand_unique(path: Path, rows: list[Row], key: str) -> None:
    seen = [row[key] for row in rows]
    for row in rows:
        demand(seen.count(row[key]) == 1, path, row, f"{key} {row[key]!r} is used twice")


def demand(condition: bool, path: Path, row: Row, message: str) -> None:
    if not condition:
        raise SystemExit(f"{path.name}: {row.get('name', row)}: {message}")
