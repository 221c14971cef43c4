"""``tidewire bench rpc``: requests and replies between processes, beside what is used for them
today, on this machine.

A caller and an echo service are two processes, joined through a hub or broker that is a third.
Contenders take turns, and every run starts all its processes anew. The output is a table,
``bench-rpc.json`` and pictures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from .bars_picture import bars_picture
from .engine import all_runs, default_out, positive
from .machine import machine
from .model import Scale
from .picture import chart
from .programs import bench_folder
from .progress import Progress
from .rpc_cases import make
from .rpc_programs import prepare
from .rpc_results import RpcSession, show

LANGUAGES = {"python": "Python", "rust": "Rust", "javascript": "JavaScript calls Python"}
EXAMPLES = """examples:
  tidewire bench rpc                         every workload and peer (a quarter of an hour)
  tidewire bench rpc --full                  more runs, longer streams
  tidewire bench rpc --only small,stream     some workloads; rust, python or javascript for one language
  tidewire bench rpc --peers nats-py,zenoh-python --only seq
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark.

    Args:
        argv: arguments after ``tidewire bench rpc``; none for those of the process.

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
        print(f"tidewire bench rpc: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"tidewire bench rpc: --out {out}: {error.strerror}: name a folder that can be written", file=sys.stderr)
        return 2
    with closing(Progress(plan.runs(), quiet=options.quiet)) as progress:
        needed = {run.key for run in all_runs(plan)}
        crowds = any(curve.id == "curve-joined" for curve in plan.curves)
        programs = prepare(bench, needed, progress.say, crowds=crowds, build=not options.no_build)
        session = RpcSession(plan, programs, progress, before)
        session.run()
    report = session.full_report()
    write(report, session, out)
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        show(report, session)
    return 1 if any(failure["kind"] == "ours" for failure in session.failures) else 0


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tidewire bench rpc",
        description="Runs requests and replies between processes, ours and those of peers, under the same workloads, in turns.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--full", action="store_true", help="more runs, longer streams")
    sizes.add_argument("--smoke", action="store_true", help="tiny sizes, only to see that everything runs")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--only", metavar="IDS", help="workloads by id or a part of it: small,beside-python,rust")
    parser.add_argument("--peers", metavar="NAMES", help="contenders by name, divided by commas")
    parser.add_argument("--repeat", type=positive, metavar="N", help="runs of each contender")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the report and the pictures go")
    parser.add_argument("--no-build", action="store_true", help="use what has been installed and built before")
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    return parser


def names(text: str | None) -> list[str]:
    """a,b."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def write(report: dict[str, Any], session: RpcSession, out: Path) -> None:
    """The report and its pictures."""
    (out / "bench-rpc.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    foot = f"{report['machine']['cpu']}, {report['machine']['cores']} cores · {report['when'][:10]}"
    for language, title in LANGUAGES.items():
        cases = [result for result in session.cases if result.case.id.endswith(f"-{language}") and result.series]
        if cases:
            text = bars_picture(f"Calls between processes, {title}", cases, foot)
            (out / f"bench-rpc-{language}.svg").write_text(text, encoding="utf-8")
    for result in session.curves:
        if result.points:
            text = chart(result.curve.title, result.curve.x_title, result.curve.y_title, result.lines(), foot)
            (out / f"bench-rpc-{result.curve.id.removeprefix('curve-')}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
