"""The answer of a node to `tidewire top`: its statistics, condensed to a bounded length."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from typing import Any

from tidewire.errors import LimitExceeded

ANSWER_BYTES_MAX = 1_048_576
OTHERS_MAX = 50
"""Most actors that are no agents in an answer: the busiest."""

# Rows of agents and pools: the first number with which the answer keeps its bound is taken.
_ROWS = (500, 50, 5)
_COUNTS = ("depth", "capacity", "high_water", "handled", "failed", "dropped", "restarts")
_AGENT = ("sent", "retried", "expired", "waiting_again")
_POOL = (
    *("name", "function", "kind", "state", "capacity", "workers_wanted", "waiting", "waiting_for_room", "in_workers"),
    *("oldest_wait_ms", "accepted", "handled", "failed", "timed_out", "dead_lettered", "redelivered", "restarts"),
)
_SERVICE = ("service", "instance", "errors", "cancelled", "streams", "in_flight", "waiting", "p50_us", "p99_us")
_DISPATCHER = ("threads", "threads_max", "asleep", "actors", "depth", "handled", "failed", "dropped")
_WHOLE = ("timers", "ask_timeouts", "subscriptions", "dead_letters", "dead_letters_let_go")

_Row = dict[str, Any]


def bounded(statistics: _Row) -> _Row:
    """Return of ``node.statistics()`` what ``tidewire top`` shows, with so many rows that it has at
    most ``ANSWER_BYTES_MAX`` bytes as JSON.

    Raises:
        LimitExceeded: if few rows are too long, too.
    """
    for rows in _ROWS:
        answer = condense(statistics, rows)
        if len(json.dumps(answer, separators=(",", ":"))) <= ANSWER_BYTES_MAX:
            return answer
    raise LimitExceeded(f"names and capabilities are too long for an answer of {ANSWER_BYTES_MAX:,} bytes")


def condense(statistics: _Row, rows: int) -> _Row:
    """Return of ``node.statistics()`` what ``tidewire top`` shows: the busiest of each kind, and
    how many there are.
    """
    # Those of other nodes have their counters there.
    agents = [agent for agent in statistics["agents"] if agent["status"] != "remote"]
    pools = statistics["pools"]
    registered = {agent["id"] for agent in agents}
    others = [actor for actor in statistics["actors"] if actor["id"] not in registered]
    return {
        "agents": [_agent(row) for row in _busiest(agents, rows)],
        "agents_count": len(agents),
        "pools": [_pool(row) for row in heapq.nlargest(rows, pools, key=lambda row: row["waiting"])],
        "pools_count": len(pools),
        "services": [
            _service(row) for row in heapq.nlargest(rows, statistics["services"], key=lambda row: row["waiting"])
        ],
        "services_count": len(statistics["services"]),
        "remote": statistics["remote"],
        "actors": [_actor(row) for row in _busiest(others, min(rows, OTHERS_MAX))],
        "actors_count": len(others),
        "dispatchers": [
            {"name": name, **_pick(row, _DISPATCHER), "starved": bool(row["held_by"]), **_times(row)}
            for name, row in statistics["dispatchers"].items()
        ],
        **_pick(statistics, _WHOLE),
    }


def _agent(row: _Row) -> _Row:
    known = {"id": row["agent"], "actor": row["id"], **_pick(row, ("type", "capabilities", "status"))}
    return {**known, **_pick(row, _COUNTS), **_pick(row, _AGENT), **_times(row)}


def _actor(row: _Row) -> _Row:
    return {**_pick(row, ("id", "name", "dispatcher")), **_pick(row, _COUNTS), **_times(row)}


def _pool(row: _Row) -> _Row:
    workers = row.get("workers", [])
    busy = sum(worker.get("task") is not None for worker in workers)
    return {**_pick(row, _POOL), "workers": len(workers), "workers_busy": busy, **_times(row)}


def _service(row: _Row) -> _Row:
    return {**_pick(row, _SERVICE), "handled": row["calls"] - row["in_flight"]}


def _busiest(rows: Iterable[_Row], count: int) -> list[_Row]:
    return heapq.nlargest(count, rows, key=lambda row: (row["depth"], row["handled"]))


def _pick(row: _Row, keys: Iterable[str]) -> _Row:
    return {key: row[key] for key in keys if key in row}


def _times(row: _Row) -> _Row:
    return {f"{kind}_{p}_us": row[kind][f"{p}_us"] for kind in ("queueing", "handling") for p in ("p50", "p99")}
