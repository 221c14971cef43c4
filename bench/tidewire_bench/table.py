"""The report for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .model import Kind
from .results import CaseResult, Series

COMPARED: tuple[tuple[Kind, str], ...] = (
    ("peer", "best peer"),
    ("channel", "best bare channel"),
    ("limit", "limit"),
)

MEANINGS = {
    "p50_us": "p50",
    "p99_us": "p99",
    "p999_us": "p99.9",
    "bytes_each": "bytes each",
    "schedule_rate": "scheduled/s",
    "cancel_rate": "cancelled/s",
    "bare_mb": "bare Python, MB",
    "node_mb": "with a node, MB",
    "requests_rate": "requests/s",
    "urgent_p50_us": "urgent p50, us",
    "low_p50_us": "low p50, us",
    "cost_us": "us a run beyond a bare loop",
    "peak_mb": "MB of workers",
    "lost": "runs lost",
    "doubled": "runs doubled",
    "seconds": "seconds",
    "kills": "kills",
}


def show(report: dict[str, Any], cases: Sequence[CaseResult], *more: Table) -> None:
    """Prints one table for each workload, then those in ``more``."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    machine, versions = report["machine"], report["versions"]
    console.print(
        f"[bold]{machine['cpu']}[/bold], {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"kernel {machine['kernel']}, load {machine['load_before']} before"
    )
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()), style="dim")
    if machine["load_before"] > 0.3 * machine["cores"]:
        console.print("The machine was busy when this began: expect a wide spread.", style="yellow")
    for result in cases:
        if result.series:
            console.print(case_table(result))
    for table in more:
        console.print(table)
    for program, why in report["not_run"].items():
        console.print(f"not run: {program}: {why}", style="yellow")
    for failure in report["failures"]:
        console.print(f"failed: {failure['workload']}, {failure['contender']}: {failure['why']}", style="red")
    console.print(f"{report['seconds']:.0f} s, scale {report['scale']}, {report['repeat']} runs of each", style="dim")


def case_table(result: CaseResult) -> Table:
    """Contenders of one workload, best first; ours in bold."""
    case = result.case
    name = MEANINGS.get(case.figure, "")
    table = Table(title=f"{case.id}  {case.title}", title_justify="left", title_style="bold", caption=verdict(result))
    table.caption_justify = "left"
    table.add_column("contender")
    table.add_column("form", style="dim")
    for heading in (f"{name} median, {case.unit}".strip(), "min", "max", *(MEANINGS[figure] for figure in case.also)):
        table.add_column(heading, justify="right")
    for one in result.best_forms():
        style = "bold cyan" if one.run.kind == "ours" else "dim" if one.run.kind == "limit" else None
        table.add_row(one.run.contender, one.run.form, *cells(one, case.figure, case.also), style=style)
    return table


def cells(one: Series, figure: str, also: Sequence[str]) -> list[str]:
    """The figures of a row."""
    values = one.values[figure]
    spread = [number(one.middle(figure)), number(min(values)), number(max(values))]
    return spread + [number(one.middle(name)) if one.has(name) else "" for name in also]


def verdict(result: CaseResult) -> str:
    """How ours compares."""
    parts = []
    for kind, words in COMPARED:
        ratio, other = result.ratio(kind), result.best(kind)
        if ratio is not None and other is not None:
            parts.append(f"{ratio:.2f}x the {words} ({other.run.contender})")
    to_bar = result.ratio_to_bar()
    if to_bar is not None and result.case.bar is not None:
        bar = f"{number(result.case.bar)} {result.case.unit}"
        parts.append(f"{to_bar:.2f}x the bar of {bar}" + ("" if to_bar >= 1 else ", which is missed"))
    return "; ".join(parts)


def number(value: float) -> str:
    """Short enough to compare at a glance."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (size if letter != 'k' else 1e3):.2f} {letter}"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
