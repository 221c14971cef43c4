#!/usr/bin/env python3
"""Writes the table of figures in README.md from a report of `tidewire bench engine`.

    python bench/readme.py [--report out/bench-engine.json] [--readme README.md] [--check]

The table stands between `<!-- figures:begin -->` and `<!-- figures:end -->`. Nothing is rounded in Tidewire's favour: its
rates and ratios are cut off, its times are rounded up, and its peers' the other way. A report of the smoke scale is refused.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
FLOORS = {"A3-idle", "P3-idle"}
"""Workloads where the bare limit of the machine says more than any peer."""
PERCENTILES = {"p50_us": ", p50", "p99_us": ", p99"}
SHOWN = ("A1", "A2", "A4-seq", "A4-x64", "A3-idle", "A5", "A6", "A8", "P1", "P2", "P4-x64", "P7")


def main() -> int:
    options = arguments()
    report = json.loads(options.report.read_text(encoding="utf-8"))
    if report["scale"] == "smoke":
        return refuse(f"{options.report}: a smoke run measures nothing; run `make bench` first")
    readme = options.readme.read_text(encoding="utf-8")
    if BEGIN not in readme or END not in readme:
        return refuse(f"{options.readme}: the marks {BEGIN} and {END} are missing")
    head, rest = readme.split(BEGIN, 1)
    changed = f"{head}{BEGIN}\n{table(report)}\n{END}{rest.split(END, 1)[1]}"
    if options.check:
        return 0 if changed == readme else refuse(f"{options.readme}: its figures are not those of {options.report}")
    options.readme.write_text(changed, encoding="utf-8")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Writes the table of figures in README.md from a benchmark report.")
    parser.add_argument("--report", type=Path, default=ROOT / "out" / "bench-engine.json")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the table is another")
    return parser.parse_args()


def table(report: dict[str, Any]) -> str:
    """The rows and what they were measured on."""
    cases = {case["id"]: case for case in report["cases"]}
    rows = [row(cases[name]) for name in SHOWN if name in cases and "ours" in cases[name]["best"]]
    heading = "| workload | Tidewire (min to max) | best peer | ratio |\n|---|---|---|---|"
    return "\n".join([heading, *rows, "", footnote(report)])


def row(case: dict[str, Any]) -> str:
    """One workload: ours, the best peer (or, where there is none, the best bare channel or limit), and the ratio."""
    ours = case["best"]["ours"]
    kinds = ("limit",) if case["id"] in FLOORS else ("peer", "channel", "limit")
    kind = next((kind for kind in kinds if kind in case["best"]), None)
    title = case["title"] + PERCENTILES.get(case["figure"], "")
    own = (
        f"{amount(ours['median'], case, ours=True)} "
        f"({amount(ours['min'], case, ours=True, unit='')} to {amount(ours['max'], case, ours=True, unit='')})"
    )
    if kind is None:
        return f"| {title} | {own} | | |"
    other = case["best"][kind]
    name = {
        "tokio-mpsc": "tokio channel",
        "futex": "bare futex",
        "bare-lock": "bare lock",
        "asyncio-queue": "asyncio.Queue",
    }.get(other["contender"], other["contender"])
    theirs = f"{name} {amount(other['median'], case, ours=False)}"
    return f"| {title} | {own} | {theirs} | {cut(ratio(case, ours, other), 2)}x |"


def ratio(case: dict[str, Any], ours: dict[str, Any], other: dict[str, Any]) -> float:
    """How many times better ours is; below 1 it is worse."""
    better = ours["median"] / other["median"]
    return float(better if case["higher_is_better"] else 1 / better)


def amount(value: float, case: dict[str, Any], *, ours: bool, unit: str | None = None) -> str:
    """A value with its unit in three digits, rounded against us."""
    up = ours != case["higher_is_better"]
    unit = case["unit"] if unit is None else unit
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size and case["unit"] != "us":
            return f"{digits(value / size, up=up)}{letter} {unit}".strip()
    return f"{digits(value, up=up)} {unit}".strip()


def digits(value: float, *, up: bool) -> str:
    """Three digits, cut off or rounded up."""
    places = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    scaled = value * 10**places
    whole = math.ceil(scaled - 1e-9) if up else math.floor(scaled + 1e-9)
    return f"{whole / 10**places:.{places}f}"


def cut(value: float, places: int) -> str:
    """Cut off after some places."""
    return f"{math.floor(value * 10**places) / 10**places:.{places}f}"


def footnote(report: dict[str, Any]) -> str:
    """Where, when and how often."""
    machine, versions = report["machine"], report["versions"]
    peers = ", ".join(
        f"{name} {versions[name]}" for name in ("kameo", "ractor", "actix", "tokio", "pekko") if name in versions
    )
    return (
        f"Medians of {report['repeat']} runs on {machine['cpu']} ({machine['cores']} cores), Linux {machine['kernel']}, "
        f"Python {versions['python']}, {report['when'][:10]}; peers in their fastest usual form, in turns with ours: {peers}. "
        "Run them yourself with `make bench`."
    )


def refuse(message: str) -> int:
    print(f"readme.py: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
