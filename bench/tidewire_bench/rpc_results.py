"""Results of requests between processes: tables of rates, times, processor time and memory, and a
curve of times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from .engine import Session
from .machine import commit, versions
from .model import Curve, Kind, Run
from .picture import short
from .programs import bench_folder
from .results import KINDS, CaseResult, CurveResult, Series
from .rpc_programs import RpcPrograms

ROLES = ("caller", "service", "hub")
COMPARED: tuple[tuple[Kind, str], ...] = (
    ("peer", "best through a hub"),
    ("channel", "best without a hub"),
    ("limit", "bare socket"),
)
COLUMNS = ("p50 ms", "p99 ms", "MB/s", "CPU us/call: caller + service + hub", "peak MB: caller + service + hub")


@dataclass
class LoadCurve(CurveResult):
    """Times over offered load or joined nodes, with everything else that the runs found."""

    figures: dict[str, dict[int, list[dict[str, float]]]] = field(default_factory=dict)

    def add(self, size: int, run: Run, figures: dict[str, float]) -> None:
        """Takes the figures of one process: the picture shows the 99th percentile."""
        self.points.setdefault(run.contender, {}).setdefault(size, []).append(figures["p99_ms"] * 1e3)
        self.figures.setdefault(run.contender, {}).setdefault(size, []).append(figures)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The medians of all figures, for each contender and load."""
        for contender, loads in self.figures.items():
            for load, found in sorted(loads.items()):
                middle = {name: median([one[name] for one in found]) for name in sorted(found[0])}
                yield {"contender": contender, "at": load, "runs": len(found), "figures": middle}

    def report(self) -> dict[str, Any]:
        """As it goes into the report."""
        return {**super().report(), "points": list(self.rows())}


@dataclass
class RpcSession(Session):
    """One invocation: a session whose runs are three processes each."""

    def _curve(self, curve: Curve) -> CurveResult:
        result = LoadCurve(curve)
        for size, runs in curve.points:
            for run in runs:
                for figures in self._figures(f"{curve.title}: {size:,}", run):
                    result.add(size, run, figures)
        return result

    def full_report(self) -> dict[str, Any]:
        """The results of the session, with the versions of the contenders."""
        assert isinstance(self.programs, RpcPrograms)
        bench = bench_folder()
        own = {**versions(None), **({"commit": commit(bench)} if bench else {})}
        return {
            **self.report(None),
            "versions": {**own, **self.programs.versions},
            "not_run": dict(self.programs.not_run),
        }


def show(report: dict[str, Any], session: RpcSession) -> None:
    """Prints one table for each workload, and one for the curve."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    machine = report["machine"]
    console.print(
        f"[bold]{machine['cpu']}[/bold], {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"kernel {machine['kernel']}, load {machine['load_before']} before"
    )
    console.print(", ".join(f"{name} {version}" for name, version in report["versions"].items()), style="dim")
    if machine["load_before"] > 0.3 * machine["cores"]:
        console.print("The machine was busy when this began: expect a wide spread.", style="yellow")
    tables = [case_table(result) for result in session.cases if result.series]
    tables += [curve_table(result) for result in session.curves if isinstance(result, LoadCurve) and result.points]
    for table in tables:
        console.print(table)
    for name, why in report["not_run"].items():
        console.print(f"not run: {name}: {why}", style="yellow")
    for failure in report["failures"]:
        console.print(f"failed: {failure['workload']}, {failure['contender']}: {failure['why']}", style="red")
    console.print(f"{report['seconds']:.0f} s, scale {report['scale']}, {report['repeat']} runs of each", style="dim")


def case_table(result: CaseResult) -> Table:
    """Contenders of one workload in all their forms, best first; ours in bold."""
    case = result.case
    table = titled(f"{case.id}  {case.title}", verdict(result))
    for heading in ("contender", "form"):
        table.add_column(heading)
    for heading in (f"{case.unit} median (min–max)", *COLUMNS):
        table.add_column(heading, justify="right")
    for one in result.ranked(*KINDS):
        middles = [cell(one, name) for name in ("p50_ms", "p99_ms", "mb_s")]
        costs = [by_role(one, "cpu_us_"), by_role(one, "peak_mb_")]
        table.add_row(one.run.contender, one.run.form, spread(one, case.figure), *middles, *costs, style=style_of(one))
    return table


def curve_table(result: LoadCurve) -> Table:
    """The loads of each contender, below each other."""
    table = titled(f"{result.curve.id}  {result.curve.title}", "")
    table.add_column("contender")
    for heading in (result.curve.x_title, "done calls/s", "p50 ms", "p99 ms", "max ms", "hub us/call", "hub peak MB"):
        table.add_column(heading, justify="right")
    for row in result.rows():
        figures = row["figures"]
        names = ("p50_ms", "p99_ms", "max_ms", "cpu_us_hub", "peak_mb_hub")
        times = [f"{figures[name]:.3g}" if name in figures else "" for name in names]
        table.add_row(row["contender"], f"{row['at']:,}", f"{figures['rate']:,.0f}", *times)
    return table


def titled(title: str, caption: str) -> Table:
    """A table with its title and caption at the left."""
    return Table(title=title, title_justify="left", title_style="bold", caption=caption, caption_justify="left")


def style_of(one: Series) -> str | None:
    """Ours stands out; what has less to do stands back."""
    return {"ours": "bold cyan", "limit": "dim"}.get(one.run.kind)


def spread(one: Series, figure: str) -> str:
    """A median between its ends."""
    values = one.values[figure]
    return f"{short(one.middle(figure))} ({short(min(values))}–{short(max(values))})"


def cell(one: Series, figure: str) -> str:
    """A median, where there is one."""
    return f"{one.middle(figure):.3g}" if one.has(figure) else ""


def by_role(one: Series, prefix: str) -> str:
    """The medians of all processes that took part."""
    return " + ".join(f"{one.middle(prefix + role):,.3g}" for role in ROLES if one.has(prefix + role))


def verdict(result: CaseResult) -> str:
    """How ours compares, or which is the best to be beaten."""
    parts = []
    for kind, words in COMPARED:
        ratio, other = result.ratio(kind), result.best(kind)
        if ratio is not None and other is not None:
            parts.append(f"{ratio:.2f}x the {words} ({other.run.contender})")
    return "; ".join(parts)
