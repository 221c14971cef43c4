#!/usr/bin/env python3
"""Repeats a selection of Python tests beside busy processors: a test that fails once in N runs is
broken.

Usage: python tools/flaky.py [--runs N] [-k EXPRESSION] [FILE ...]   (files as below python/, such
as tests/test_forks.py)
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python"
RUN_TIMEOUT_S = 1_800


def main() -> int:
    parser = argparse.ArgumentParser(description="Repeats Python tests beside busy processors.")
    parser.add_argument("--runs", type=int, default=20, help="how often (default: 20)")
    parser.add_argument("-k", dest="keyword", help="pytest's expression of names")
    parser.add_argument("files", nargs="*", help="test files, relative to python/")
    options = parser.parse_args()
    if not options.keyword and not options.files:
        parser.error("name what to repeat: K=expression or FILES=tests/test_x.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly"]
    command += ["-k", options.keyword] if options.keyword else []
    failures: Counter[str] = Counter()
    hogs = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)]
    for hog in hogs:
        hog.start()
    try:
        for number in range(1, options.runs + 1):
            ran = subprocess.run(
                [*command, *options.files],
                cwd=PACKAGE,
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
            if ran.returncode == pytest_no_tests:
                print("no test has such a name")
                return 2
            failed = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            failures.update(failed or (["the run itself"] if ran.returncode else []))
            if ran.returncode and failures.total() <= 1:
                print(ran.stdout[-8_000:], ran.stderr[-2_000:])
            print(f"run {number} of {options.runs}: {'passed' if ran.returncode == 0 else 'failed'}", flush=True)
    finally:
        for hog in hogs:
            hog.kill()
    for name, count in failures.most_common():
        print(f"{name}: failed in {count} of {options.runs} runs")
    print(f"{options.runs - failures.total()} passed, {failures.total()} failed")
    return 1 if failures else 0


def _burn() -> None:
    while True:
        pass


pytest_no_tests = 5

if __name__ == "__main__":
    sys.exit(main())
