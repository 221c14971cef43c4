#!/usr/bin/env python3
"""Rust tests: builds them once, runs the test programs side by side, and prints a table of
durations.

Usage: python tools/rust_tests.py [--package NAME ...] [--jobs N] [FILTER]

`cargo test` runs its programs one after the other, and most of them wait for servers and timers. A
runner with one process per test would start a database for each test, so a program stays one
process here. Documentation tests follow. Budgets are in tools/budgets.toml.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import durations

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 600.0
FEATURES = {
    "tidewire-engine": ["tokio"],
    "tidewire-node": ["embedded", "schemars", "opentelemetry"],
}
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)


@dataclass
class Program:
    """One test program and the outcome of its run."""

    name: str
    executable: str
    folder: Path
    output: str = ""
    status: int = 0
    wall_s: float = 0.0
    work_s: float = 0.0

    def counts(self) -> tuple[int, int, int]:
        """Passed, failed and ignored tests."""
        found = [tuple(map(int, numbers)) for numbers in RESULT.findall(self.output)]
        passed, failed, ignored = (sum(one[number] for one in found) for number in range(3))
        # A program that ended without a result has failed as well.
        return passed, max(failed, int(self.status != 0)), ignored


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds and runs the Rust tests.")
    parser.add_argument("filter", nargs="?", help="run only tests whose path contains this text")
    parser.add_argument("--package", action="append", default=[], help="a crate (default: all but the Python binding)")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="programs at a time")
    options = parser.parse_args()
    packages = [f"--package={name}" for name in options.package] or ["--workspace", "--exclude=tidewire-python"]
    features = [
        f"--features={crate}/{feature}"
        for crate, names in FEATURES.items()
        for feature in names
        if not options.package or crate in options.package
    ]
    programs = list(build([*packages, *features]))
    arguments = [options.filter] if options.filter else []
    calibration_s = durations.calibrate()
    with ThreadPoolExecutor(options.jobs) as pool:
        for program in pool.map(lambda program: run(program, arguments), programs):
            report(program)
    libraries = ["cargo", "test", "--quiet", "--no-fail-fast", "--doc", *packages, *features, "--", *arguments]
    documents = run(Program("documentation tests", "", ROOT), [], libraries)
    report(documents)
    ran = [*programs, documents]
    passed, failed, ignored = (sum(numbers) for numbers in zip(*(program.counts() for program in ran), strict=True))
    broken = [program for program in ran if program.status != 0]
    costs = [durations.Cost(program.name, sum(program.counts()[:2]), program.wall_s, program.work_s) for program in ran]
    exceeded = durations.conclude("rust", costs, calibration_s, whole=not options.package and not options.filter)
    print(f"Rust tests: {passed} passed, {failed} failed, {ignored} skipped")
    return 1 if broken or exceeded else 0


def build(arguments: list[str]) -> Iterator[Program]:
    """Builds all test programs; a build that fails ends this process with the compiler's messages
    on the screen.
    """
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    for line in built.stdout.splitlines():
        message: dict[str, Any] = json.loads(line)
        if message.get("executable") and message.get("profile", {}).get("test"):
            folder = Path(message["manifest_path"]).parent
            yield Program(f"{folder.name} {message['target']['name']}", message["executable"], folder)


def run(program: Program, arguments: list[str], command: list[str] | None = None) -> Program:
    """Runs one program to its end, or for at most ten minutes, and measures it."""
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(program.folder), "LD_LIBRARY_PATH": libraries()}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command or [program.executable, *arguments],
            cwd=program.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        limit = threading.Timer(TIMEOUT_S, process.kill)
        limit.start()
        _, status, used = os.wait4(process.pid, 0)
        limit.cancel()
        output.seek(0)
        program.output = output.read()
    process.returncode = program.status = os.waitstatus_to_exitcode(status)
    program.wall_s, program.work_s = time.monotonic() - began, used.ru_utime + used.ru_stime
    if program.status < 0:
        program.output += f"\nended by signal {-program.status}, at the latest after {TIMEOUT_S:.0f} s"
    return program


@functools.cache
def libraries() -> str:
    """The folder of the libraries of the compiler, for tests of procedural macros."""
    sysroot = ["rustc", "--print", "target-libdir"]
    return subprocess.run(sysroot, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def report(program: Program) -> None:
    """Prints one line, and the whole output of a program that failed."""
    passed, failed, ignored = program.counts()
    if program.status != 0:
        print(program.output)
    print(
        f"  {program.name}: {passed} passed, {failed} failed, {ignored} skipped in {program.wall_s:.1f} s", flush=True
    )


if __name__ == "__main__":
    sys.exit(main())
