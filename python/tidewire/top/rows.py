"""Rows of a node for the console: the node searches, sorts and limits them."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tidewire.errors import InvalidArgument
from tidewire.top.answer import ANSWER_BYTES_MAX, depth, load, tables_of

KINDS = ("agents", "actors", "pools", "services")
LIMIT, LIMIT_MAX = 100, 1_000
"""Number of rows in a reply: default and maximum."""

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
    """Query for rows."""

    kinds: tuple[str, ...]
    first: int
    limit: int
    sort: str
    descending: bool
    search: str

    @classmethod
    def of(cls, args: tuple[Any, ...], named_args: dict[str, Any]) -> Query:
        """Return the query of the arguments of a call.

        Args:
            args: ``kinds``, a list of "agents", "actors", "pools" and "services".
            named_args: ``first``, the number of skipped rows; ``limit``, the most rows of the
                reply; ``sort``; ``descending``; ``search``, words that rows must all contain.

        Raises:
            InvalidArgument: if an argument is not allowed.
        """
        names = {"kinds": None, "first": 0, "limit": LIMIT, "sort": "load", "descending": True, "search": ""}
        unknown = [name for name in named_args if name not in names]
        if unknown or len(args) > 1:
            raise InvalidArgument(f"rows: {unknown or args!r:.200} is not allowed: give {', '.join(names)} by name")
        query = cls(**{**names, **dict(zip(names, args, strict=False)), **named_args})
        if not isinstance(query.kinds, (list, tuple)) or not query.kinds or not set(query.kinds) <= set(KINDS):
            raise InvalidArgument(f"kinds: {query.kinds!r:.200} is not allowed: give a list of {', '.join(KINDS)}")
        if not _is_whole(query.first, 0, 10**9) or not _is_whole(query.limit, 1, LIMIT_MAX):
            raise InvalidArgument(
                f"first, limit: {query.first!r:.50} and {query.limit!r:.50} are not allowed: give whole numbers from 0 on, "
                f"and from 1 to {LIMIT_MAX:,}"
            )
        if query.sort not in _SORTS:
            raise InvalidArgument(f"sort: {query.sort!r:.100} is not allowed: give one of {', '.join(_SORTS)}")
        if not isinstance(query.search, str) or not isinstance(query.descending, bool):
            raise InvalidArgument("search, descending: give a text, and True or False")
        return query

    def answer(self, statistics: _Row) -> _Row:
        """Return the rows, the number of matches, and the number of all rows. The last rows are
        left out if the reply would exceed ``ANSWER_BYTES_MAX``.
        """
        tables = tables_of(statistics)
        rows = [(kind, row) for kind in dict.fromkeys(self.kinds) for row in tables[kind][0]]
        words = self.search.lower().split()
        matching = rows if not words else [each for each in rows if all(word in _text(each[1]) for word in words)]
        key = _SORTS[self.sort]
        choose = heapq.nlargest if self.descending else heapq.nsmallest
        best = choose(self.first + self.limit, matching, key=lambda each: key(each[1]))
        selected: list[_Row] = []
        left = ANSWER_BYTES_MAX - 1_000
        for kind, row in best[self.first :]:
            entry = {"table": kind, **tables[kind][1](row)}
            left -= len(json.dumps(entry, separators=(",", ":"))) + 1
            if left < 0:
                break
            selected.append(entry)
        return {"rows": selected, "found": len(matching), "total": len(rows)}


def _text(row: _Row) -> str:
    return " ".join(str(row.get(name, "")) for name in _TEXTS).lower()


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
