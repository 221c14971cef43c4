"""Message rates of each row between two samples of a node."""

from __future__ import annotations

import math
from typing import Any

KINDS = ("joins", "agents", "pools", "services", "routes", "actors", "dispatchers")

# Keys that identify a row across samples. A node never reuses ids.
_IDENTITY = ("actor", "id", "name", "function", "service", "instance")

_Row = dict[str, Any]


def with_rates(now: _Row, before: _Row | None) -> _Row:
    """Return a sample with ``handled_per_s`` in its rows; None for new rows.

    A node whose statistics are expensive repeats its reply; then the rates stay the same.
    """
    if before is not None and before["at_s"] == now["at_s"]:
        return before
    result = dict(now)
    for kind in KINDS:
        old = {_identity(row): row["handled"] for row in before[kind]} if before else {}
        counts = [row["handled"] - old.get(_identity(row), math.inf) for row in now[kind]]
        elapsed_s = now["at_s"] - before["at_s"] if before else 1.0
        # Two pools may have the same name: a falling count has no rate.
        rates = [round(count / elapsed_s, 1) if count >= 0 else None for count in counts]
        result[kind] = [{**row, "handled_per_s": rate} for row, rate in zip(now[kind], rates, strict=True)]
    return result


def _identity(row: _Row) -> tuple[Any, ...]:
    return tuple(map(row.get, _IDENTITY))
