"""``tidewire bench campaigns``: seeded runs over worker processes with stored results, beside what
is used for them today.

Contenders take turns, and every campaign starts its workers anew; the clock runs from the first run
handed out to the last row stored, with workers that are warm. The output is a table,
``bench-campaigns.json`` and pictures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from . import table
from .campaigns_cases import TITLES, make
from .campaigns_programs import CampaignPrograms, key_of, prepared
from .engine import Session, all_runs, default_out, positive
from .machine import commit, machine, versions
from .model import Scale
from .picture import chart
from .programs import bench_folder
from .progress import Progress
from .results import CaseResult

EXAMPLES = """examples:
  tidewire bench campaigns                               every workload and peer (half an hour, and their installation)
  tidewire bench campaigns --only tiny,killed            some workloads: tiny, tiny-2, ms, killed, curve
  tidewire bench campaigns --peers 'tidewire,bare loop'  some contenders
  tidewire bench campaigns --json | jq .cases            for a program to read
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Args:
        argv: arguments after ``tidewire bench campaigns``; none for those of the process.

    Returns:
        0, or 1 if one of our own runs failed, or 2 if there was nothing to run.
    """
    options = arguments().parse_args(argv)
    scale: Scale = "full" if options.full else "smoke" if options.smoke else "short"
    bench, before = bench_folder(), machine()
    out = options.out or default_out(bench)
    try:
        plan = make(scale, options.repeat, names(options.only), names(options.peers))
        out.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        print(f"tidewire bench campaigns: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"tidewire bench campaigns: --out {out}: {error.strerror}: name a folder that can be written",
            file=sys.stderr,
        )
        return 2
    with closing(Progress(plan.runs(), quiet=options.quiet)) as progress:
        needed = {key_of(run) for run in all_runs(plan)}
        with prepared(bench, needed, progress.say, build=not options.no_build) as programs:
            session = CampaignSession(plan, programs, progress, before)
            session.run()
            report = report_of(session, programs, bench)
    write(report, session, out)
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        table.show(report, session.cases)
    return 1 if any(failure["kind"] == "ours" for failure in session.failures) else 0


class CampaignSession(Session):
    """A session whose picture of lengths shows what a run costs, instead of a rate."""

    def _figures(self, title: str, run: Any) -> list[dict[str, float]]:
        found = super()._figures(title, run)
        return [{**one, "rate": max(one["cost_us"], 0.01)} for one in found] if "--steps" in run.arguments else found


def report_of(session: Session, programs: CampaignPrograms, bench: Path | None) -> dict[str, Any]:
    """The results of the session, with the versions of the contenders."""
    own = {**versions(None), **({"commit": commit(bench)} if bench else {})}
    return {
        **session.report(None),
        "versions": {**own, **programs.versions},
        "not_run": dict(programs.not_run),
        "pairs": pairs(session.cases),
    }


def pairs(cases: Sequence[CaseResult]) -> dict[str, float]:
    """Ratios between our own medians that are promised: PostgreSQL beside SQLite, 3 workers beside
    2, killed beside undisturbed.
    """
    rates = {
        (result.case.id, one.run.form): one.middle("rate")
        for result in cases
        for one in result.ranked("ours")
        if one.has("rate")
    }
    wanted = {
        "PostgreSQL / SQLite, tiny, 2 workers": (("tiny-2", "PostgreSQL"), ("tiny-2", "SQLite")),
        "3 / 2 workers, tiny, SQLite": (("tiny-3", "SQLite"), ("tiny-2", "SQLite")),
        "killed / undisturbed, SQLite": (("killed", "SQLite"), ("tiny-2", "SQLite")),
        "killed every 300 ms / undisturbed, SQLite": (("often", "SQLite"), ("tiny-2", "SQLite")),
    }
    return {name: rates[one] / rates[two] for name, (one, two) in wanted.items() if one in rates and two in rates}


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tidewire bench campaigns",
        description="Runs campaigns over worker processes, ours and those of peers, under the same workloads, in turns.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--full", action="store_true", help="500,000 runs, 7 of each, longer patience")
    sizes.add_argument("--smoke", action="store_true", help="tiny sizes, only to see that everything runs")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--only", metavar="IDS", help="workloads by id or a part of it: tiny,ms-2,killed,curve")
    parser.add_argument("--peers", metavar="NAMES", help="contenders by name, divided by commas")
    parser.add_argument("--repeat", type=positive, metavar="N", help="runs of each contender")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the report and the pictures go")
    parser.add_argument("--no-build", action="store_true", help="use what has been installed before")
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


def names(text: str | None) -> list[str]:
    """a,b."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def write(report: dict[str, Any], session: Session, out: Path) -> None:
    """The report and its pictures."""
    (out / "bench-campaigns.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    foot = f"{report['machine']['cpu']}, {report['machine']['cores']} cores · {report['when'][:10]}"
    for workload, title in TITLES.items():
        lines = by_workers([one for one in session.cases if one.case.id.startswith(f"{workload}-")])
        if lines:
            text = chart(f"Campaigns: {title}", "workers", "runs/s", lines, foot)
            (out / f"bench-campaigns-{workload}.svg").write_text(text, encoding="utf-8")
    for result in session.curves:
        if result.points:
            text = chart(result.curve.title, result.curve.x_title, result.curve.y_title, result.lines(), foot)
            (out / f"bench-campaigns-{result.curve.id.removeprefix('curve-')}.svg").write_text(text, encoding="utf-8")


def by_workers(cases: Sequence[CaseResult]) -> dict[str, list[tuple[int, float]]]:
    """The rate of each contender, over the number of workers."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for result in cases:
        for one in result.series.values():
            workers = int(result.case.id.rpartition("-")[2])
            lines.setdefault(one.run.contender, []).append((workers, median(one.values["rate"])))
    return lines


if __name__ == "__main__":
    sys.exit(main())
