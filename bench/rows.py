#!/usr/bin/env python3
"""Prints one page of all reports of `tidewire bench`: a line for each workload, with our figure
beside that of the best peer. Workloads in which a peer is ahead are the first.

    python bench/rows.py [--reports out] [--behind]

A ratio below 1 means that the peer is ahead; for times the ratio is turned round. It is cut off, so
that no row looks better than it is. Rows without a peer are the last.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from figure_tables import GATEWAYS
from stream_tables import best_of

Row = tuple[float, tuple[str, ...]]
HEAD = ("ratio", "workload", "ours", "spread", "best peer", "figure", "report")


def rows(report: dict[str, Any], name: str) -> Iterator[Row]:
    """Yield the ratio and the cells of each workload."""
    makers = {"streams": rows_of_streams, "http": rows_of_http}
    yield from makers.get(name, rows_of_cases)(report, name)


def rows_of_cases(report: dict[str, Any], name: str) -> Iterator[Row]:
    """Rows of a report whose cases name the best of each kind."""
    for case in report["cases"]:
        ours, peer, ratio = case["best"].get("ours"), case["best"].get("peer"), case["ratio_to_best_peer"]
        if ours is not None:
            beside = None if peer is None else (peer["contender"], peer["median"])
            figures = [ours["median"], ours["min"], ours["max"]]
            yield row(case["id"], figures, case["unit"], beside, ratio, name)


def rows_of_streams(report: dict[str, Any], name: str) -> Iterator[Row]:
    """Rows of durable streams: one for each place of a stream."""
    for case in report["cases"]:
        figure = case["figures"][0]
        for label in case["ours"]:
            found = [run[figure] for run in case["results"][label] if figure in run]
            peers = {peer: runs for peer, runs in case["results"].items() if peer not in case["ours"]}
            best = best_of(peers, label) if figure == "rate" else None
            ratio = None if best is None else median(found) / best[1]
            yield row(f"{case['id']}, {label}", spread_of(found), figure, best, ratio, name)


def rows_of_http(report: dict[str, Any], name: str) -> Iterator[Row]:
    """Rows of the HTTP gateway."""
    for ours, peer in GATEWAYS.items():
        rates = {of: [run["rate"] for run in report["runs"].get(of, ())] for of in (ours, peer)}
        if rates[ours]:
            best = (peer, median(rates[peer])) if rates[peer] else None
            ratio = None if best is None else median(rates[ours]) / best[1]
            yield row(ours, spread_of(rates[ours]), "requests/s", best, ratio, name)


def spread_of(found: list[float]) -> list[float]:
    """The median, the least and the most of some figures."""
    return [median(found), min(found), max(found)]


def row(
    workload: str,
    ours: list[float],
    unit: str,
    peer: tuple[str, float] | None,
    ratio: float | None,
    name: str,
) -> Row:
    """One line of the page."""
    cut = "" if ratio is None else f"{math.floor(ratio * 100) / 100:.2f}"
    told = "" if peer is None else f"{shown(peer[1])} {peer[0]}"
    spread = f"{shown(ours[1])} to {shown(ours[2])}"
    return math.inf if ratio is None else ratio, (cut, workload, shown(ours[0]), spread, told, unit, name)


def shown(value: float) -> str:
    """A figure with three digits at least."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(lines: list[tuple[str, ...]]) -> str:
    """Cells in columns."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    made = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(line.rstrip() for line in made)


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path, default=Path("out"), help="folder of the reports")
    parser.add_argument("--behind", action="store_true", help="only workloads in which a peer is ahead")
    given = parser.parse_args()
    reports = sorted(given.reports.glob("bench-*.json"))
    if not reports:
        sys.exit(f"--reports: {given.reports} has no bench-*.json: run `tidewire bench engine --out {given.reports}`")
    found: list[Row] = []
    for path in reports:
        report = json.loads(path.read_text(encoding="utf-8"))
        found += rows(report, path.stem.removeprefix("bench-"))
    found.sort(key=lambda row: row[0])
    behind = [row for row in found if row[0] < 1]
    print(table([HEAD, *(cells for _, cells in (behind if given.behind else found))]))
    compared = [row for row in found if row[0] < math.inf]
    print(f"\n{len(behind)} of {len(compared)} workloads with a peer are behind it, in {len(reports)} reports")


if __name__ == "__main__":
    main()
