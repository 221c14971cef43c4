"""``tidewire bench streams``: durable streams from Python beside SQLite, JetStream, Redis and a
bare file, with acks as each gives them.

Contenders take turns, and every run is a process of its own in a new folder. The output is a table
and ``bench-streams.json``. Messages have 256 bytes. Acks of folders and hubs, of SQLite, Redis and
the bare file come after a sync; those of nats-server come before it, as it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .engine import default_out, positive
from .machine import commit, machine, versions
from .programs import NO_CHECKOUT, bench_folder
from .streams_cases import CASES, SCALES, Case, Contender
from .streams_programs import StreamPrograms, Unavailable, say
from .streams_table import show

EXAMPLES = """examples:
  tidewire bench streams                        every workload and peer (a quarter of an hour, and the installation of peers)
  tidewire bench streams --short                 in under 3 minutes, once installed
  tidewire bench streams --only pipelined,restart   some workloads
  tidewire bench streams --only restart --events 10000000
  tidewire bench streams --json | jq .cases
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; 0, 1 if a run of ours failed, or 2 if it can't be run."""
    options = arguments().parse_args(argv)
    bench, before = bench_folder(), machine()
    if bench is None:
        return refuse(NO_CHECKOUT)
    only = [name for name in (options.only or "").split(",") if name]
    unknown = set(only) - {case.id for case in CASES}
    if unknown:
        return refuse(f"--only {','.join(sorted(unknown))}: not one of {', '.join(case.id for case in CASES)}")
    scale = SCALES["short" if options.short else "whole"]
    programs = StreamPrograms(bench, build=not options.no_build)
    cases, not_run, failed = [], {}, False
    try:
        for case in CASES:
            if only and case.id not in only:
                continue
            found, missing = measured(case, programs, scale, options)
            cases.append(found)
            not_run.update(missing)
            failed |= any(name.startswith("tidewire") for name in missing)
    finally:
        programs.close()
    report = {
        "machine": {**before, "load_after": round(os.getloadavg()[0], 2)},
        "versions": {**versions(None), "commit": commit(bench), **programs.versions()},
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "scale": "short" if options.short else "whole",
        "cases": cases,
        "not_run": not_run,
    }
    out = options.out or default_out(bench)
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench-streams.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 1 if failed else 0


def measured(
    case: Case, programs: StreamPrograms, scale: dict[str, int], options: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, str]]:
    """Run a case in rounds, in which its contenders take turns; with what could not be run, and
    why.
    """
    repeat = options.repeat or scale["repeat"]
    results: dict[str, list[dict[str, float]]] = {}
    missing: dict[str, str] = {}
    for number in range(repeat):
        for contender in case.contenders:
            if contender.name in missing:
                continue
            for label, count in sizes(case, contender, scale, options.events):
                say(f"{case.id}: run {number + 1} of {repeat}: {label}")
                try:
                    results.setdefault(label, []).extend(programs.figures(case, contender, count))
                except Unavailable as problem:
                    missing[contender.name] = str(problem)
                    say(f"{contender.name}: {problem}")
                    break
    found = {"id": case.id, "title": case.title, "figures": list(case.figures), "bar": case.bar, "results": results}
    ours = {contender.name for contender in case.contenders if contender.ours}
    return {**found, "ours": [label for label in results if label.split(" · ")[0] in ours]}, missing


def sizes(case: Case, contender: Contender, scale: dict[str, int], events: int | None) -> list[tuple[str, int]]:
    """The runs of a contender in a round: their labels and numbers."""
    if case.points == "events":
        counts = [events] if events else [10_000, 100_000] + [1_000_000] * (scale["repeat"] > 1)
        return [(f"{contender.name} · {count:,} events", count) for count in counts]
    return [(contender.name, round(scale[case.size] * contender.share))]


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tidewire bench streams",
        description="Runs durable streams, ours and those of peers, under the same workloads, in turns.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="fewer messages and runs: under 3 minutes once installed")
    parser.add_argument("--only", metavar="IDS", help=f"workloads: {', '.join(case.id for case in CASES)}")
    parser.add_argument("--events", type=positive, metavar="N", help="of restart, instead of 10^4, 10^5 and 10^6")
    parser.add_argument("--repeat", type=positive, metavar="N", help="runs of each contender")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where bench-streams.json goes (default: out)")
    parser.add_argument("--no-build", action="store_true", help="use what has been installed before")
    return parser


def refuse(problem: str) -> int:
    """Say why it can't be run."""
    say(f"tidewire bench streams: {problem}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
