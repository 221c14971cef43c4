#!/usr/bin/env python3
"""Writes the figures of docs/benchmarks.md, and the pictures beside them, from reports of `tidewire
bench`.

    python bench/figures.py [--reports out] [--check]

Each table stands between two marks, `<!-- NAME:begin -->` and `<!-- NAME:end -->`. A table without
a report stays as it is. Nothing is rounded in Tidewire's favour: its rates and ratios are cut off,
its times are rounded up, and its peers' the other way. A report of the smoke scale is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figure_tables
import stream_tables

ROOT = Path(__file__).resolve().parents[1]
PICTURES = Path("docs/pictures")
COLUMNS = 100


@dataclass(frozen=True)
class Table:
    """A place in a page, and what fills it."""

    name: str
    page: str
    report: str
    make: Callable[[dict[str, Any]], str]
    wants: str = ""
    """A part of the names of the workloads that it shows."""

    def fits(self, report: dict[str, Any]) -> bool:
        """True if the report has the workload of the table; some reports lack it."""
        return not self.wants or any(self.wants in case["id"] for case in report["cases"])

    @property
    def marks(self) -> tuple[str, str]:
        return f"<!-- {self.name}:begin -->", f"<!-- {self.name}:end -->"


TABLES = (
    Table("figures", "docs/benchmarks.md", "bench-engine.json", figure_tables.engine),
    Table("rpc", "docs/benchmarks.md", "bench-rpc.json", figure_tables.rpc_python, "-python"),
    Table("campaigns", "docs/benchmarks.md", "bench-campaigns.json", figure_tables.campaigns),
    Table("streams", "docs/benchmarks.md", "bench-streams.json", stream_tables.streams),
    Table("streams-all", "docs/benchmarks.md", "bench-streams.json", stream_tables.streams_all),
    Table("campaigns-all", "docs/benchmarks.md", "bench-campaigns.json", figure_tables.campaigns_all),
    Table("rpc-rust", "docs/benchmarks.md", "bench-rpc.json", figure_tables.rpc_rust, "-rust"),
    Table("agents", "docs/benchmarks.md", "bench-agents.json", figure_tables.agents),
    Table("javascript", "docs/benchmarks.md", "bench-rpc.json", figure_tables.rpc_javascript, "-javascript"),
    Table("http", "docs/benchmarks.md", "bench-http.json", figure_tables.http),
)


class Refused(Exception):
    """Error with its cause and its fix."""


def main() -> int:
    options = arguments()
    try:
        wanted = {**pages(options.reports), **pictures(options.reports)}
    except Refused as error:
        print(f"figures.py: {error}", file=sys.stderr)
        return 1
    others = [path for path, content in wanted.items() if not path.is_file() or path.read_text("utf-8") != content]
    if options.check and others:
        print(f"figures.py: not as the reports say: {', '.join(map(shown, others))}", file=sys.stderr)
        return 1
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
        print(shown(path))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Writes figures and pictures of docs/benchmarks.md from reports.")
    parser.add_argument("--reports", type=Path, default=ROOT / "out", help="where `tidewire bench --out` put them")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a table or picture is another")
    return parser.parse_args()


def pages(reports: Path) -> dict[Path, str]:
    """Every page with its tables as the reports say."""
    changed: dict[Path, str] = {}
    for table in TABLES:
        report, page = read(reports / table.report), ROOT / table.page
        if report is not None and table.fits(report):
            text = changed.get(page) or page.read_text("utf-8")
            changed[page] = between(text, table, table.make(report))
    if not changed:
        raise Refused(f"{reports}: no report is there; run `make bench` and `make bench-rpc` first")
    return changed


def read(path: Path) -> dict[str, Any] | None:
    """A report, if it has been written."""
    if not path.is_file():
        return None
    report: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if report.get("scale") == "smoke":
        raise Refused(f"{path}: a smoke run measures nothing; run `make bench` and `make bench-rpc` first")
    return report


def between(text: str, table: Table, new: str) -> str:
    """The text with something else between the marks of a table."""
    begin, end = table.marks
    if begin not in text or end not in text:
        raise Refused(f"{table.page}: the marks {begin} and {end} are missing")
    head, rest = text.split(begin, 1)
    lines = "\n".join(line if line.startswith("|") else wrapped(line) for line in new.split("\n"))
    return f"{head}{begin}\n{lines}\n{end}{rest.split(end, 1)[1]}"


def wrapped(line: str) -> str:
    """A line of prose in the width of the pages."""
    return textwrap.fill(line, COLUMNS, break_long_words=False, break_on_hyphens=False)


def pictures(reports: Path) -> dict[Path, str]:
    """The pictures that the pages show, where they have been drawn."""
    shown_in = "".join((ROOT / page).read_text("utf-8") for page in {table.page for table in TABLES})
    return {ROOT / PICTURES / name: content for name, content in drawn(reports) if f"pictures/{name})" in shown_in}


def drawn(reports: Path) -> Iterator[tuple[str, str]]:
    """Name and content of each picture among the reports."""
    for path in sorted(reports.glob("bench-*.svg")):
        yield path.name, path.read_text("utf-8")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
