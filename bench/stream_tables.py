"""Tables of durable streams for docs/benchmarks.md, from a report of `tidewire bench streams`."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

HEADS = {"rate": "per second", "p50_us": "p50", "p99_us": "p99", "restart_ms": "first ack", "resident_mb": "memory"}
HEADS |= {"median_s": "median", "p99_s": "p99", "max_s": "most"}
UNITS = {"us": "us", "ms": "ms", "mb": "MB", "s": "s"}
BARE = "bare file"


def streams(report: dict[str, Any]) -> str:
    """The rates of ours beside the best peer of each workload."""
    lines = ["| workload | Tidewire (min to max) | best peer | ratio |", "|---|---|---|---|"]
    for case in report["cases"]:
        if case["figures"] != ["rate"]:
            continue
        peers = {name: runs for name, runs in case["results"].items() if name not in case["ours"]}
        for label in case["ours"]:
            best = best_of(peers, label)
            beside = ("", "") if best is None else (f"{best[0]} {amount('rate', best[1])}", ratio(case, label, best[1]))
            where = label.removeprefix("tidewire ")
            lines.append(f"| {case['title']}, {where} | {ranged(case, label, 'rate')} | {' | '.join(beside)} |")
    return "\n".join([*lines, "", foot(report)])


def best_of(peers: dict[str, Any], label: str) -> tuple[str, float] | None:
    """The fastest peer with acks as ours has them: JetStream's come before a sync. A bare file is a
    limit, and no peer.
    """
    on_nats = "NATS" in label
    rates = {
        name: median(run["rate"] for run in runs)
        for name, runs in peers.items()
        if ("nats" in name) == on_nats and not name.startswith(BARE)
    }
    return max(rates.items(), key=lambda item: item[1], default=None)


def streams_all(report: dict[str, Any]) -> str:
    """Every figure of every contender."""
    parts = []
    for case in report["cases"]:
        bar = f" Bar: {case['bar']}." if case["bar"] else ""
        heads = [HEADS[name] for name in case["figures"]]
        lines = [f"{case['title']}.{bar}", "", f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for label in case["results"]:
            lines.append(f"| {label} | {' | '.join(ranged(case, label, name) for name in case['figures'])} |")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, foot(report)])


def ranged(case: dict[str, Any], label: str, name: str) -> str:
    """A median with its range."""
    values = [run[name] for run in case["results"][label] if name in run]
    if not values:
        return ""
    if len(values) == 1:
        return amount(name, values[0])
    return f"{amount(name, median(values))} ({amount(name, min(values))} to {amount(name, max(values))})"


def amount(name: str, value: float) -> str:
    """A figure as people write it: rates are cut off, times and bytes rounded up."""
    if name == "rate":
        return f"{math.floor(value):,}"
    unit = UNITS[name.rpartition("_")[2]]
    places = 3 if unit == "s" else 1 if value < 100 else 0
    return f"{math.ceil(value * 10**places) / 10**places:,.{places}f} {unit}"


def ratio(case: dict[str, Any], label: str, peer: float) -> str:
    """Ours by the peer's, cut off."""
    return f"{math.floor(100 * median(run['rate'] for run in case['results'][label]) / peer) / 100:.2f}x"


def foot(report: dict[str, Any]) -> str:
    """Where and with what it was measured."""
    known, found = report["machine"], report["versions"]
    peers = ", ".join(f"{name} {found[name]}" for name in ("nats-py", "redis") if name in found)
    missing = "".join(f" Not run: {name} ({why})." for name, why in report["not_run"].items())
    runs = max((len(runs) for case in report["cases"] for runs in case["results"].values()), default=0)
    return (
        f"Medians of {runs} runs in turns, 256 B each, on {known['cpu']} ({known['cores']} cores), load {known['load_before']} before and "
        f"{known['load_after']} after, {report['when'][:10]}, Python {found['python']}: {peers}. Acks are given after fsync, but by "
        f"nats-server, which syncs every two minutes as it is installed.{missing} Run them yourself with `tidewire bench streams`."
    )
