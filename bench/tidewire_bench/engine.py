"""``tidewire bench engine``: the engine and its peers, in turns, on this machine.

Contenders of one workload take turns, so that a slow minute of the machine hits all of them. Every
run is a process of its own. The output is a table, ``bench-engine.json`` and two pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import table
from .machine import machine, versions
from .model import Case, Curve, Plan, Run, Scale, curve_repeats, repeats
from .picture import chart
from .plan import make
from .programs import Programs, RunFailed, bench_folder, prepare
from .progress import Progress
from .results import CaseResult, CurveResult

EXAMPLES = """examples:
  tidewire bench engine                      three minutes: every workload, peers included
  tidewire bench engine --full               everything at full size, in every form (an hour or more)
  tidewire bench engine --only A1,A2         some workloads
  tidewire bench engine --json | jq .cases   for a program to read
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Args:
        argv: arguments after ``tidewire bench engine``; none for those of the process.

    Returns:
        0, or 1 if one of our own runs failed, or 2 if there was nothing to run.
    """
    options = arguments().parse_args(argv)
    scale: Scale = "full" if options.full else "smoke" if options.smoke else "short"
    try:
        plan = make(scale, options.repeat, [name for name in (options.only or "").split(",") if name])
    except ValueError as error:
        print(f"tidewire bench engine: {error}", file=sys.stderr)
        return 2
    bench, before = bench_folder(), machine()
    with closing(Progress(plan.runs(), quiet=options.quiet)) as progress:
        programs = prepare(bench, {run.program for run in all_runs(plan)}, progress.say, build=not options.no_build)
        session = Session(plan, programs, progress, before)
        session.run()
    report = session.report(bench)
    write(report, session.curves, options.out or default_out(bench))
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        table.show(report, session.cases)
    return 1 if any(failure["kind"] == "ours" for failure in session.failures) else 0


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tidewire bench engine",
        description="Runs the in-process engine and its peers under the same workloads, in turns.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--full", action="store_true", help="full sizes, every form of every contender")
    sizes.add_argument("--smoke", action="store_true", help="tiny sizes, only to see that everything runs")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--only", metavar="IDS", help="workloads by id, divided by commas: A1,A2,P1")
    parser.add_argument("--repeat", type=positive, metavar="N", help="runs of each contender")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the report and the pictures go")
    parser.add_argument("--no-build", action="store_true", help="use the programs that have been built before")
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


@dataclass
class Session:
    """One invocation: runs the plan and keeps what came out."""

    plan: Plan
    programs: Programs
    progress: Progress
    before: dict[str, object]
    cases: list[CaseResult] = field(default_factory=list)
    curves: list[CurveResult] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Every case, then every curve."""
        for case in self.plan.cases:
            self.cases.append(self._case(case))
        for curve in self.plan.curves:
            self.curves.append(self._curve(curve))

    def report(self, bench: Path | None) -> dict[str, Any]:
        """Everything that is known now."""
        return {
            "schema": 1,
            "scale": self.plan.scale,
            "repeat": self.plan.repeat,
            "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "seconds": round(time.monotonic() - self.started, 1),
            "machine": self.before,
            "versions": versions(bench),
            "cases": [result.report() for result in self.cases if result.series],
            "curves": [result.report() for result in self.curves if result.points],
            "not_run": dict(self.programs.missing),
            "failures": self.failures,
        }

    def _case(self, case: Case) -> CaseResult:
        result = CaseResult(case)
        for turn in range(self.plan.repeat):
            for run in case.runs:
                if turn < repeats(self.plan, run):
                    for figures in self._figures(case.title, run):
                        result.add(run, figures)
        return result

    def _curve(self, curve: Curve) -> CurveResult:
        result = CurveResult(curve)
        for _ in range(curve_repeats(self.plan)):
            for size, runs in curve.points:
                for run in runs:
                    for figures in self._figures(f"{curve.title}: {size:,}", run):
                        result.add(size, run, figures)
        return result

    def _figures(self, title: str, run: Run) -> list[dict[str, float]]:
        self.progress.step(f"{title} · {run.contender} ({run.form})")
        if not self.programs.can(run):
            return []
        try:
            return self.programs.figures(run, self.plan.timeout_s)
        except RunFailed as failure:
            self.failures.append({"workload": title, "contender": run.contender, "kind": run.kind, "why": str(failure)})
            return []


def all_runs(plan: Plan) -> list[Run]:
    """Every run of a plan once."""
    in_curves = [run for curve in plan.curves for _, runs in curve.points for run in runs]
    return [run for case in plan.cases for run in case.runs] + in_curves


def default_out(bench: Path | None) -> Path:
    """``out`` beside the repository's ``bench``, else in the working directory."""
    return (bench.parent if bench else Path.cwd()) / "out"


def write(report: dict[str, Any], curves: Sequence[CurveResult], out: Path) -> None:
    """The report and its pictures."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench-engine.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    foot = f"{report['machine']['cpu']}, {report['machine']['cores']} cores · {report['when'][:10]}"
    for result in curves:
        if result.points:
            text = chart(result.curve.title, result.curve.x_title, result.curve.y_title, result.lines(), foot)
            (out / f"bench-engine-{result.curve.id.removeprefix('curve-')}.svg").write_text(text, encoding="utf-8")


def positive(text: str) -> int:
    """A whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be 1 or more")
    return number


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
