"""Message rates between two looks at a node, for each row."""

from __future__ import annotations

import math
from typing import Any

KINDS = ("joins", "agents", "pools", "services", "routes", "actors", "dispatchers")

# Keys that a row is known by from look to look. Ids are never used twice in a node.
_IDENTITY = ("actor", "id", "name", "function", "service", "instance")

_Row = dict[str, Any]


def with_rates(now: _Row, before: _Row | None) -> _Row:
    """Return a look with ``handled_per_s`` in its rows, None where the look before has no such row.

    A node that looks cost much gives the same answer several times: the rates stay the same too
    then.
    """
    if before is not None and before["at_s"] == now["at_s"]:
        return before
    rated = dict(now)
    for kind in KINDS:
        old = {_identity(row): row["handled"] for row in before[kind]} if before else {}
        counts = [row["handled"] - old.get(_identity(row), math.inf) for row in now[kind]]
        passed_s = now["at_s"] - before["at_s"] if before else 1.0
        # Two pools may have one name: a count that falls is not shown.
        rates = [round(count / passed_s, 1) if count >= 0 else None for count in counts]
        rated[kind] = [{**row, "handled_per_s": rate} for row, rate in zip(now[kind], rates, strict=True)]
    return rated


def _identity(row: _Row) -> tuple[Any, ...]:
    return tuple(map(row.get, _IDENTITY))
