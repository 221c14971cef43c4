"""The table of ``tidewire bench streams``."""

from __future__ import annotations

from statistics import median
from typing import Any

FORMS = {
    "rate": "{:,.0f}/s",
    "p50_us": "p50 {:,.0f} us",
    "p99_us": "p99 {:,.0f} us",
    "restart_ms": "{:,.1f} ms",
    "resident_mb": "{:,.1f} MB",
}
FORMS |= {"median_s": "median {:.3f} s", "p99_s": "p99 {:.3f} s", "max_s": "max {:.3f} s"}


def show(report: dict[str, Any]) -> None:
    """Print every case: median (least to most)."""
    known = report["machine"]
    load = f"load {known['load_before']} before, {known['load_after']} after"
    print(f"{known['cpu']}, {known['cores']} cores, {load}")
    print(", ".join(f"{name} {version}" for name, version in report["versions"].items()))
    for case in report["cases"]:
        print(f"\n{case['title']}{' · bar: ' + case['bar'] if case['bar'] else ''}")
        for label, runs in case["results"].items():
            cells = [cell(name, [run[name] for run in runs if name in run]) for name in case["figures"]]
            print(f"  {label:<36} {'   '.join(cells)}{beside(case, label)}")
    for name, why in report["not_run"].items():
        print(f"not run: {name}: {why}")


def cell(name: str, values: list[float]) -> str:
    """One figure with its range."""
    if not values:
        return ""
    form = FORMS[name]
    if len(values) == 1:
        return form.format(values[0])
    return f"{form.format(median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def beside(case: dict[str, Any], label: str) -> str:
    """How one of ours compares with the best peer."""
    if case["figures"][0] != "rate" or label not in case["ours"] or not case["results"][label]:
        return ""
    # A bare file is a limit, and acks of nats-server come before a sync.
    peers = [
        median(run["rate"] for run in runs)
        for name, runs in case["results"].items()
        if runs and name not in case["ours"] and not name.startswith("bare") and ("nats" in name) == ("NATS" in label)
    ]
    if not peers:
        return ""
    return f"   {median(run['rate'] for run in case['results'][label]) / max(peers):.2f}x the best peer"
