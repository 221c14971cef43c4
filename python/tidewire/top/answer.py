"""The reply of a node to `tidewire top`: its statistics, condensed to a bounded size."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from typing import Any

from tidewire.errors import LimitExceeded

ANSWER_BYTES_MAX = 1_048_576
OTHERS_MAX = 50
"""Most actors in a reply that are not agents: the busiest."""

ROWS_MAX = 500
"""Most rows of each other kind. A tenth or a hundredth of them if the reply is too long."""

WORKERS_MAX, DECISIONS_MAX = 64, 8
"""Most workers, and most of the latest scaling decisions, of each pool."""

_TOTALS = ("remote", "timers", "ask_timeouts", "subscriptions", "dead_letters", "dead_letters_let_go")

_Row = dict[str, Any]


def bounded(statistics: _Row) -> _Row:
    """Return the statistics for ``tidewire top`` from ``node.statistics()``: the busiest rows of
    each kind, and their total number. As JSON it has at most ``ANSWER_BYTES_MAX`` bytes.

    Raises:
        LimitExceeded: if even few rows are too long.
    """
    tables = tables_of(statistics)
    dispatchers = statistics["dispatchers"].items()
    high_water = {name: 0 for name, _ in dispatchers}
    for actor in statistics["actors"]:
        high_water[actor["dispatcher"]] = max(high_water[actor["dispatcher"]], actor["high_water"])
    totals = {
        **{f"{kind}_count": len(rows) for kind, (rows, *_) in tables.items()},
        "dispatchers": [
            {"name": name, "starved": bool(row["held_by"]), "high_water": high_water[name], **_flat_row(row)}
            for name, row in dispatchers
        ],
        **{key: statistics[key] for key in _TOTALS},
        "of_hub": statistics.get("links", {}).get("of_hub"),
    }
    for share in (1, 10, 100):
        answer = dict(totals)
        for kind, (rows, make_row, rows_max) in tables.items():
            answer[kind] = [make_row(row) for row in heapq.nlargest(min(rows_max, ROWS_MAX // share), rows, key=load)]
        if len(json.dumps(answer, separators=(",", ":"))) <= ANSWER_BYTES_MAX:
            return answer
    raise LimitExceeded(f"names and capabilities are too long for an answer of {ANSWER_BYTES_MAX:,} bytes")


def tables_of(statistics: _Row) -> dict[str, tuple[list[_Row], Callable[[_Row], _Row], int]]:
    """Return for each kind its rows, a function that makes a row of a reply, and the most rows of a
    reply.
    """
    # Agents of other nodes have their counters on these nodes.
    agents = [agent for agent in statistics["agents"] if agent["status"] != "remote"]
    registered = {agent["id"] for agent in agents}
    others = [actor for actor in statistics["actors"] if actor["id"] not in registered]
    return {
        "agents": (agents, lambda row: {**_flat_row(row), "id": row["agent"], "actor": row["id"]}, ROWS_MAX),
        "pools": (statistics["pools"], lambda row: {**_flat_row(row), **_worker_fields(row)}, ROWS_MAX),
        "services": (statistics["services"], lambda row: {**row, "handled": row["calls"] - row["in_flight"]}, ROWS_MAX),
        "actors": (others, _flat_row, OTHERS_MAX),
        "durations": (statistics["durations"], dict, ROWS_MAX),
        "joins": (statistics["joins"], dict, ROWS_MAX),
        "routes": (statistics["routes"], dict, ROWS_MAX),
    }


def _flat_row(row: _Row) -> _Row:
    """Return the plain values of a row, with the median and 99th percentile of its times."""
    flat = {key: value for key, value in row.items() if key == "capabilities" or not isinstance(value, dict | list)}
    return flat | {f"{kind}_{p}_us": row[kind][f"{p}_us"] for kind in ("queueing", "handling") for p in ("p50", "p99")}


def _worker_fields(row: _Row) -> _Row:
    workers = row.get("workers", [])
    return {
        "workers": len(workers),
        "workers_busy": sum(one.get("task") is not None for one in workers),
        "worker_rows": workers[:WORKERS_MAX],
        "decisions": row.get("decisions", [])[-DECISIONS_MAX:],
    }


def depth(row: _Row) -> int:
    """Return the queue length of a row of any kind."""
    waiting: int = row["depth"] if "depth" in row else row.get("waiting", 0)
    return waiting


def load(row: _Row) -> tuple[int, int]:
    """Return the queue length of a row, and its number of handled messages."""
    return depth(row), row["handled"] if "handled" in row else row["calls"]
