"""Message rates between two looks at a node, for each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_Row = dict[str, Any]

_KEYS: dict[str, Callable[[_Row], object]] = {
    "agents": lambda row: row["actor"],
    "actors": lambda row: row["id"],
    "pools": lambda row: (row["name"], row["function"]),
    "services": lambda row: (row["service"], row["instance"]),
    "dispatchers": lambda row: row["name"],
}
"""What a row is known by from look to look. Ids are never used twice in a node."""


def with_rates(now: _Row, before: _Row | None) -> _Row:
    """Return a look with ``handled_per_s`` in its rows, None where the look before has no such row,
    the most loaded first.

    A node that looks cost much gives the same answer several times: the rates stay the same too
    then.
    """
    if before is not None and before["at_s"] == now["at_s"]:
        return before
    return {**now, **{kind: _rated(kind, now, before) for kind in _KEYS}}


def _rated(kind: str, now: _Row, before: _Row | None) -> list[_Row]:
    key = _KEYS[kind]
    handled = {} if before is None else {key(row): row["handled"] for row in before.get(kind, ())}
    passed_s = 1.0 if before is None else now["at_s"] - before["at_s"]
    rows = [
        {**row, "handled_per_s": _rate(row["handled"], handled.get(key(row)), passed_s)} for row in now.get(kind, ())
    ]
    return sorted(rows, key=_load, reverse=True)


def _rate(now: int, before: int | None, passed_s: float) -> float | None:
    # Two pools may have one name: what can't be is not shown.
    return None if before is None or now < before else round((now - before) / passed_s, 1)


def _load(row: _Row) -> tuple[int, float, int]:
    depth: int = row["depth"] if "depth" in row else row["waiting"]
    return depth, row["handled_per_s"] or 0.0, row["handled"]
