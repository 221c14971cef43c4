"""``tidewire bench agents``: agents and pools of workers, beside what is used without them, on this
machine.

It runs as ``tidewire bench engine`` does: contenders take turns, every run is a process of its own.
The output is a table, ``bench-agents.json`` and a picture.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from . import table
from .agents_cases import make
from .agents_picture import scaling_picture
from .agents_programs import prepare
from .agents_scaling import Scaling, is_scaling, scaling_tables, scalings
from .engine import Session, all_runs, default_out, positive
from .machine import commit, machine, versions
from .model import Scale
from .programs import bench_folder
from .progress import Progress

EXAMPLES = """examples:
  tidewire bench agents                      two minutes, and the installation of peers the first time
  tidewire bench agents --full               everything at full size, in every form
  tidewire bench agents --only G1,W3         some workloads; W3 is W3-1, W3-2 and W3-3
  tidewire bench agents --json | jq .cases   for a program to read
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Args:
        argv: arguments after ``tidewire bench agents``; none for those of the process.

    Returns:
        0, or 1 if one of our own runs failed, or 2 if there was nothing to run.
    """
    options = arguments().parse_args(argv)
    scale: Scale = "full" if options.full else "smoke" if options.smoke else "short"
    try:
        plan = make(scale, options.repeat, [name for name in (options.only or "").split(",") if name])
    except ValueError as error:
        print(f"tidewire bench agents: {error}", file=sys.stderr)
        return 2
    bench, before = bench_folder(), machine()
    out = options.out or default_out(bench)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(
            f"tidewire bench agents: --out {out}: {error.strerror}: name a folder that can be written", file=sys.stderr
        )
        return 2
    programs = prepare(bench, {run.program for run in all_runs(plan)})
    with closing(Progress(plan.runs(), quiet=options.quiet)) as progress:
        session = Session(plan, programs, progress, before)
        session.run()
    found = scalings(session.cases)
    report = report_of(session, found, bench)
    write(report, found, out)
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        table.show(report, [one for one in session.cases if not is_scaling(one)], *scaling_tables(found))
    return 1 if any(failure["kind"] == "ours" for failure in session.failures) else 0


def report_of(session: Session, found: Sequence[Scaling], bench: Path | None) -> dict[str, Any]:
    """The results of the session, the scaling of the pool, and the versions of the contenders."""
    at = commit(bench) if bench else ""
    taking_part = {**versions(None), **({"commit": at} if at else {}), **session.programs.versions}
    return {**session.report(None), "versions": taking_part, "scaling": [one.report() for one in found]}


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tidewire bench agents",
        description="Runs agents and pools of workers, and what is used without them, under the same workloads, in turns.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--full", action="store_true", help="full sizes, every form of every contender")
    sizes.add_argument("--smoke", action="store_true", help="tiny sizes, only to see that everything runs")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--only", metavar="IDS", help="workloads by id, divided by commas: G1,G3,W3")
    parser.add_argument("--repeat", type=positive, metavar="N", help="runs of each contender")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the report and the picture go")
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


def write(report: dict[str, Any], found: Sequence[Scaling], out: Path) -> None:
    """The report and its picture."""
    (out / "bench-agents.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if found:
        foot = f"{report['machine']['cpu']}, {report['machine']['cores']} cores · {report['when'][:10]}"
        (out / "bench-agents-pool.svg").write_text(scaling_picture(found, foot), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
