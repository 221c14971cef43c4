"""Durations of test files: a table of the slowest ones, and budgets in multiples of a calibration
loop.

A budget is no number of seconds: a run measures a fixed loop first, and the wall time of each file
counts in multiples of it, so that a slower machine has longer budgets. One run over its budget is
noise; two whole runs in a row fail.
"""

from __future__ import annotations

import json
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGETS, LAST_RUN = ROOT / "tools/budgets.toml", ROOT / ".make/over-budget.json"
ROWS = 20


@dataclass(frozen=True)
class Cost:
    """Wall time and processor time of the tests of one file or program, child processes
    included.
    """

    name: str
    tests: int
    wall_s: float
    work_s: float

    @property
    def wait_s(self) -> float:
        return max(self.wall_s - self.work_s, 0.0)


def calibrate() -> float:
    """Seconds of the calibration loop: the shortest of five runs."""
    return min(_loop() for _ in range(5))


def _loop() -> float:
    began, total = time.perf_counter(), 0
    for number in range(1_000_000):
        total += number & 7
    return time.perf_counter() - began


def conclude(suite: str, costs: list[Cost], calibration_s: float, *, whole: bool) -> list[str]:
    """Prints the table and the files over their budget; returns those that fail: over it in this
    whole run and the last one.
    """
    print(table(suite, costs))
    over = over_budget(suite, costs, calibration_s)
    for name, (units, budget) in over.items():
        print(f"{name}: {units:.0f} calibration loops, its budget is {budget:.0f} (tools/budgets.toml)")
    if not whole:
        return []
    last = json.loads(LAST_RUN.read_text(encoding="utf-8")) if LAST_RUN.exists() else {}
    again = sorted(set(last.get(suite, [])) & over.keys())
    LAST_RUN.parent.mkdir(exist_ok=True)
    LAST_RUN.write_text(json.dumps({**last, suite: sorted(over)}), encoding="utf-8")
    for name in again:
        print(f"{name}: over its budget twice in a row. Make it quicker, or raise its budget with a reason.")
    return again


def over_budget(suite: str, costs: list[Cost], calibration_s: float) -> dict[str, tuple[float, float]]:
    """Files that took more calibration loops than they may, with both numbers."""
    budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))[suite]
    measured = {cost.name: cost.wall_s / calibration_s for cost in costs}
    limits = {name: float(budgets.get(name, budgets["default"])) for name in measured}
    return {name: (units, limits[name]) for name, units in measured.items() if units > limits[name]}


def table(suite: str, costs: list[Cost]) -> str:
    """The slowest files, the longest first."""
    slowest = sorted(costs, key=lambda cost: -cost.wall_s)[:ROWS]
    width = max((len(cost.name) for cost in slowest), default=4)
    lines = [f"slowest {suite} tests", f"{'file':<{width}}  tests    wall    work    wait"]
    lines += [f"{c.name:<{width}}  {c.tests:5} {c.wall_s:6.1f}s {c.work_s:6.1f}s {c.wait_s:6.1f}s" for c in slowest]
    total = [sum(numbers) for numbers in zip(*((c.tests, c.wall_s, c.work_s, c.wait_s) for c in costs), strict=True)]
    if total:
        lines.append(f"{'all':<{width}}  {total[0]:5} {total[1]:6.1f}s {total[2]:6.1f}s {total[3]:6.1f}s")
    return "\n".join(lines)
