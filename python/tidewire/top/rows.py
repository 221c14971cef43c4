"""Some rows of one node for the console: searched, sorted and cut at the node."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tidewire.errors import InvalidArgument
from tidewire.top.answer import ANSWER_BYTES_MAX, depth, load, tables_of

KINDS = ("agents", "actors", "pools", "services")
LIMIT, LIMIT_MAX = 100, 1_000
"""Rows of an answer, by default and at most."""

_Row = dict[str, Any]


def _time(kind: str) -> Callable[[_Row], Any]:
    return lambda row: row.get(kind, {}).get("p99_us", row.get("p99_us", 0))


_SORTS: dict[str, Callable[[_Row], Any]] = {
    "load": load,
    "depth": depth,
    "name": lambda row: str(row.get("agent") or row.get("service") or row.get("name") or ""),
    "status": lambda row: str(row.get("status", "")) or ("busy" if depth(row) else "idle"),
    "handled": lambda row: row["handled"] if "handled" in row else row["calls"],
    "failed": lambda row: row.get("failed", 0) + row.get("errors", 0),
    "restarts": lambda row: row.get("restarts", 0),
    "queueing_p99_us": _time("queueing"),
    "handling_p99_us": _time("handling"),
}
_TEXTS = ("agent", "name", "type", "status", "service", "instance", "dispatcher")


class Query(NamedTuple):
    """Which rows a caller asks for."""

    kinds: tuple[str, ...]
    first: int
    limit: int
    sort: str
    descending: bool
    search: str

    @classmethod
    def of(cls, given: tuple[Any, ...], by_name: dict[str, Any]) -> Query:
        """Return the query that a caller gave.

        Args:
            given: ``kinds``, a list of "agents", "actors", "pools" and "services".
            by_name: ``first``, the rows that are left out in front; ``limit``, the rows of the
                answer; ``sort``; ``descending``; ``search``, words that a row has all of.

        Raises:
            InvalidArgument: if an argument is not allowed.
        """
        names = {"kinds": None, "first": 0, "limit": LIMIT, "sort": "load", "descending": True, "search": ""}
        unknown = [name for name in by_name if name not in names]
        if unknown or len(given) > 1:
            raise InvalidArgument(f"rows: {unknown or given!r:.200} is not allowed: give {', '.join(names)} by name")
        asked = cls(**{**names, **dict(zip(names, given, strict=False)), **by_name})
        if not isinstance(asked.kinds, (list, tuple)) or not asked.kinds or not set(asked.kinds) <= set(KINDS):
            raise InvalidArgument(f"kinds: {asked.kinds!r:.200} is not allowed: give a list of {', '.join(KINDS)}")
        if not _is_whole(asked.first, 0, 10**9) or not _is_whole(asked.limit, 1, LIMIT_MAX):
            raise InvalidArgument(
                f"first, limit: {asked.first!r:.50} and {asked.limit!r:.50} are not allowed: give whole numbers from 0 on, "
                f"and from 1 to {LIMIT_MAX:,}"
            )
        if asked.sort not in _SORTS:
            raise InvalidArgument(f"sort: {asked.sort!r:.100} is not allowed: give one of {', '.join(_SORTS)}")
        if not isinstance(asked.search, str) or not isinstance(asked.descending, bool):
            raise InvalidArgument("search, descending: give a text, and True or False")
        return asked

    def answer(self, statistics: _Row) -> _Row:
        """Return the rows, how many fit the search, and how many there are. Rows are left out at
        the end where an answer would be longer than ``ANSWER_BYTES_MAX``.
        """
        tables = tables_of(statistics)
        rows = [(kind, row) for kind in dict.fromkeys(self.kinds) for row in tables[kind][0]]
        words = self.search.lower().split()
        fits = rows if not words else [each for each in rows if all(word in _text(each[1]) for word in words)]
        key = _SORTS[self.sort]
        choose = heapq.nlargest if self.descending else heapq.nsmallest
        best = choose(self.first + self.limit, fits, key=lambda each: key(each[1]))
        found: list[_Row] = []
        left = ANSWER_BYTES_MAX - 1_000
        for kind, row in best[self.first :]:
            made = {"table": kind, **tables[kind][1](row)}
            left -= len(json.dumps(made, separators=(",", ":"))) + 1
            if left < 0:
                break
            found.append(made)
        return {"rows": found, "found": len(fits), "total": len(rows)}


def _text(row: _Row) -> str:
    return " ".join(str(row.get(name, "")) for name in _TEXTS).lower()


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
