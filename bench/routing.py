#!/usr/bin/env python3
r"""Writes the table and the curves of docs/guides/routing.md from the routing simulation.

    cargo run --profile fast -p tidewire-testkit --example routing \
        | python bench/routing.py [--check]

`make routing` does both. The simulation runs in virtual time: the same seeds give the same figures
on every machine. With --check, nothing is written, and the exit status is 1 if the page differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from math import log10
from pathlib import Path
from typing import Any

from tidewire_bench.picture import OTHERS, OURS, sheet, short, text

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/guides/routing.md"
PICTURE = ROOT / "docs/pictures/routing-p99.svg"
RULES = {
    "random": "random",
    "round robin": "round robin",
    "least outstanding": "least_outstanding",
    "peak EWMA": "peak EWMA",
    "one average": "one average",
    "learned": "lowest_latency",
    "oracle": "oracle",
}
EQUAL = 1.05
"""A rule is equal to the best one up to this ratio."""
COLOURS = {
    rule: OURS if rule == "learned" else colour for rule, colour in zip(RULES, (*OTHERS, "#212529"), strict=True)
}
COLUMNS, PANEL, GAP, SIDE, ABOVE, HIGH, FOOT = 2, 420, 56, 52, 84, 150, 52
Runs = dict[tuple[str, str], dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args()
    report = json.load(sys.stdin)
    runs: Runs = {(run["scenario"], run["rule"]): run for run in report["runs"]}
    scenarios = list(dict.fromkeys(scenario for scenario, _ in runs))
    page = PAGE.read_text()
    tables = {
        "p99": table(runs, scenarios, "p99_ms", "{:,.1f}".format),
        "p50": table(runs, scenarios, "p50_ms", "{:,.1f}".format),
        "wasted": table(runs, scenarios, "wasted", lambda share: f"{100 * share:.1f} %"),
        "regret": table(runs, scenarios, "regret", lambda share: f"{100 * share:,.0f} %"),
        "verdict": verdict(runs, scenarios, report["seeds"]),
    }
    for name, body in tables.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{body}\n{end}{rest.partition(end)[2]}"
    if options.check:
        return int(page != PAGE.read_text() or picture(runs, scenarios) != PICTURE.read_text())
    PAGE.write_text(page)
    PICTURE.write_text(picture(runs, scenarios))
    print(tables["verdict"])
    return 0


def table(runs: Runs, scenarios: list[str], figure: str, words: Any) -> str:
    """A row for each scenario, a column for each rule."""
    rules = [rule for rule in RULES if not (figure == "regret" and rule == "oracle")]
    rows = [f"| scenario | {' | '.join(RULES[rule] for rule in rules)} |", "|---|" + "---:|" * len(rules)]
    for scenario in scenarios:
        cells = [words(runs[scenario, rule][figure]) for rule in rules]
        rows.append(f"| {scenario} | {' | '.join(cells)} |")
    return "\n".join(rows)


def verdict(runs: Runs, scenarios: list[str], seeds: int) -> str:
    """The comparison that the page states."""

    def p99(scenario: str, rule: str) -> float:
        return runs[scenario, rule]["p99_ms"]

    peers = [rule for rule in RULES if rule not in ("learned", "oracle")]
    ratios = [p99(scenario, "learned") / min(p99(scenario, peer) for peer in peers) for scenario in scenarios]
    least = max(p99(scenario, "learned") / p99(scenario, "least outstanding") for scenario in scenarios)
    return (
        f"Over {seeds} seeds, `lowest_latency` has the lowest p99 in {sum(ratio < 1 for ratio in ratios)} of "
        f"{len(ratios)} scenarios,\nand is at most 5 % above the best rule in {sum(ratio <= EQUAL for ratio in ratios)}. "
        f"Its p99 is {min(ratios):.2f} to {max(ratios):.2f} times that of\nthe best other rule, and at most "
        f"{least:.2f} times that of `least_outstanding`."
    )


def picture(runs: Runs, scenarios: list[str]) -> str:
    """A panel for each scenario: the 99th percentile by second, on a logarithmic axis."""
    rows = -(-len(scenarios) // COLUMNS)
    width, height = 2 * SIDE + COLUMNS * PANEL + GAP, ABOVE + rows * (HIGH + FOOT) + 20
    parts = [sheet("99th percentile of the calls of each second, in ms", width, height, SIDE)]
    x = float(SIDE)
    for rule, name in RULES.items():
        parts.append(f'<rect x="{x:.1f}" y="46" width="12" height="12" fill="{COLOURS[rule]}"/>')
        parts.append(text(x + 18, 57, name, "name"))
        x += 40 + 6.6 * len(name)
    for place, scenario in enumerate(scenarios):
        left, top = SIDE + place % COLUMNS * (PANEL + GAP), ABOVE + place // COLUMNS * (HIGH + FOOT)
        parts += panel(scenario, {rule: runs[scenario, rule]["by_second"] for rule in RULES}, left, top)
    return "\n".join([*parts, "</svg>\n"])


def panel(scenario: str, lines: dict[str, list[float]], left: float, top: float) -> Iterator[str]:
    """One scenario. Lines that grow without a bound leave the panel at 1 s."""
    low, high = 10.0, 1_000.0
    yield text(left, top + 2, scenario, "panel")

    def y_of(value: float) -> float:
        share = log10(min(max(value, low), high) / low) / log10(high / low)
        return top + 12 + (1 - share) * (HIGH - 12)

    for tick in (10, 20, 50, 100, 200, 500, 1_000):
        yield f'<line class="fine" x1="{left}" y1="{y_of(tick):.1f}" x2="{left + PANEL}" y2="{y_of(tick):.1f}"/>'
        if tick in (10, 100, 1_000):
            yield text(left - 6, y_of(tick) + 4, short(tick), "name", anchor="end")
    for rule in sorted(lines, key=lambda rule: rule == "learned"):
        step = PANEL / len(lines[rule])
        points = " ".join(f"{left + (at + 0.5) * step:.1f},{y_of(value):.1f}" for at, value in enumerate(lines[rule]))
        pen = f'stroke="{COLOURS[rule]}" stroke-width="{2.6 if rule == "learned" else 1.4}"'
        yield f'<polyline points="{points}" fill="none" {pen}><title>{RULES[rule]}</title></polyline>'
    for second in (0, 5, 10, 15, 20):
        yield text(left + PANEL * second / 20, top + HIGH + 16, f"{second} s", "name", anchor="middle")


if __name__ == "__main__":
    sys.exit(main())
