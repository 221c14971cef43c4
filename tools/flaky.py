#!/usr/bin/env python3
"""Repetition of tests beside busy processors: a test that fails once in N runs is broken.

Usage: python tools/flaky.py [--runs N] [-k EXPRESSION] [FILE ...]     Python tests below python/
       python tools/flaky.py [--runs N] --package CRATE [-k TEXT]      Rust tests of one crate
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN_TIMEOUT_S = 1_800
NO_TESTS = 5
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)|^test (\S+) \.\.\. FAILED", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description="Repeats tests beside busy processors.")
    parser.add_argument("--runs", type=int, default=20, help="number of runs (default: 20)")
    parser.add_argument("--package", help="the crate whose Rust tests to repeat")
    parser.add_argument("-k", dest="keyword", help="pytest's expression of names, or part of a Rust test's path")
    parser.add_argument("files", nargs="*", help="Python test files or folders, relative to python/")
    options = parser.parse_args()
    if not (options.keyword or options.files or options.package):
        parser.error("choose the tests: K=expression, FILES=tests/streams or CRATE=tidewire-link")
    if options.package:
        command = [sys.executable, str(ROOT / "tools/rust_tests.py"), "--package", options.package]
        command += [options.keyword] if options.keyword else []
    else:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *(["-k", options.keyword] if options.keyword else []),
            *options.files,
        ]
    return repeat(command, options.runs)


def repeat(command: list[str], runs: int) -> int:
    """Runs the command beside one busy process per processor, and counts the failed tests."""
    failures, broken = Counter[str](), 0
    hogs = [multiprocessing.Process(target=burn, daemon=True) for _ in range(os.cpu_count() or 1)]
    for hog in hogs:
        hog.start()
    for number in range(1, runs + 1):
        ran = subprocess.run(
            command, cwd=ROOT / "python", capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
        )
        if ran.returncode == NO_TESTS or "Rust tests: 0 passed, 0 failed" in ran.stdout:
            print("no test has such a name")
            return 2
        if ran.returncode:
            broken += 1
            failures.update({name for found in FAILED.findall(ran.stdout) for name in found if name} or {"the run"})
            print(ran.stdout[-8_000:] + ran.stderr[-2_000:] if broken == 1 else "")
        print(f"run {number} of {runs}: {'failed' if ran.returncode else 'passed'}", flush=True)
    for name, count in failures.most_common():
        print(f"{name}: failed in {count} of {runs} runs")
    print(f"{runs - broken} passed, {broken} failed")
    return 1 if broken else 0


def burn() -> None:
    """Keeps one processor busy until the process is killed."""
    while True:
        pass


if __name__ == "__main__":
    sys.exit(main())
