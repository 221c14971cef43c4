#!/usr/bin/env python3
"""Checks that each numbered promise of spec/semantics.md has a test.

Usage: python tools/promises.py [--list]

A test names the promises that it guards:

    Python      a decorator                     @pytest.mark.promise("P3.2", "P3.4")
    Rust        a comment above the attributes  // Promises: P3.2, P3.4.
    TypeScript  a comment above `test(`         // Promises: P3.2, P3.4.
    scenarios   a field of the JSON object      "promise": "P3.2 P3.4"

Prints each promise without a test and each marker that names no promise, and exits 1 if there is
any. Promises that tools/promises.toml lists with a reason need no test. A promise listed there must
not have one, so the list only gets shorter. With --list, prints the tests of each promise. Needs
nothing but Python 3.11.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SPEC = "spec/semantics.md"
TABLE = "tools/promises.toml"

PROMISE = re.compile(r"(?:\| )?\*\*(P\d+\.\d+)\*\*")
COMMENT = re.compile(r"\s*// Promises: (.*)\.")
# Between a comment and its function there may be attributes and doc comments.
RUST_BETWEEN = re.compile(r"\s*(#\[|///)")
RUST_FUNCTION = re.compile(r"\s*(pub )?(async )?fn (\w+)")
TYPESCRIPT_TEST = re.compile(r"\s*test(?:\.\w+)?\(\s*$|\s*test(?:\.\w+)?\(.*?([\"'`])(.*?)\1")


class Promise(NamedTuple):
    line: int
    text: str


class Marker(NamedTuple):
    """One test that names promises. `fault` tells why the marker counts for nothing."""

    file: Path
    line: int
    test: str
    numbers: list[str]
    fault: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the tests of each promise")
    options = parser.parse_args()
    found = list(read_promises())
    promises = dict(found)
    markers = [*python_markers(), *rust_markers(), *typescript_markers(), *scenario_markers()]
    untested = tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))["untested"]
    guards: dict[str, list[Marker]] = {number: [] for number in promises}
    for marker in markers:
        for number in marker.numbers:
            if not marker.fault and number in guards:
                guards[number].append(marker)
    if options.list:
        print_tests(guards)
    counts = Counter(number for number, _ in found)
    twice = [f"{SPEC}: {number} is the number of {count} promises" for number, count in counts.items() if count > 1]
    problems = [*twice, *check_markers(markers, promises), *check_promises(promises, guards, untested)]
    for problem in problems:
        print(problem, file=sys.stderr)
    tested = sum(bool(tests) for tests in guards.values())
    naming = sum(not marker.fault for marker in markers)
    print(f"promises: {tested} of {len(promises)} have a test, {naming} tests name one")
    return 1 if problems else 0


def print_tests(guards: dict[str, list[Marker]]) -> None:
    for number, tests in guards.items():
        print(number)
        for test in tests:
            print(f"    {test.file.relative_to(ROOT)}:{test.line}: {test.test}")


def check_markers(markers: list[Marker], promises: dict[str, Promise]) -> Iterator[str]:
    """Markers that are at no test, and markers that name no promise."""
    for marker in markers:
        where = f"{marker.file.relative_to(ROOT)}:{marker.line}"
        if marker.fault:
            yield f"{where}: {marker.fault}"
        for number in marker.numbers:
            if number not in promises:
                yield f"{where}: {marker.test} names {number!r}, which is no promise of {SPEC}"


def check_promises(
    promises: dict[str, Promise], guards: dict[str, list[Marker]], untested: dict[str, str]
) -> Iterator[str]:
    """Promises without a test that the table does not list, and wrong rows of the table."""
    for number, promise in promises.items():
        if not guards[number] and number not in untested:
            yield f"{SPEC}:{promise.line}: no test names {promise.text}"
    for number, reason in untested.items():
        if number not in promises:
            yield f"{TABLE}: {number} is no promise of {SPEC}: remove its row"
        elif guards[number]:
            yield f"{TABLE}: {number} has the test {guards[number][0].test}: remove its row"
        elif not reason:
            yield f"{TABLE}: {number} has no reason"


def read_promises() -> Iterator[tuple[str, Promise]]:
    lines = (ROOT / SPEC).read_text(encoding="utf-8").splitlines()
    for at, line in enumerate(lines):
        if found := PROMISE.match(line):
            # The sentences of a promise end with its paragraph, a table row with its line.
            end = at + 1 if line.startswith("|") else next((i for i in range(at, len(lines)) if not lines[i]), at + 1)
            yield found[1], Promise(at + 1, " ".join(lines[at:end]))


def python_markers() -> Iterator[Marker]:
    for file in sorted((ROOT / "python/tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.promise":
                        numbers = [ast.literal_eval(argument) for argument in decorator.args]
                        fault = "" if node.name.startswith("test_") else f"{node.name} is no test"
                        yield Marker(file, decorator.lineno, node.name, numbers, fault)


def rust_markers() -> Iterator[Marker]:
    for file in sorted((ROOT / "crates").rglob("*.rs")):
        # The cases of the conformance suites are functions that a macro makes tests of.
        suite = file.is_relative_to(ROOT / "crates/tidewire-testkit/src")
        lines = file.read_text(encoding="utf-8").splitlines()
        for at, numbers in comments(lines):
            end = at + 1
            while end < len(lines) and RUST_BETWEEN.match(lines[end]):
                end += 1
            function = RUST_FUNCTION.match(lines[end]) if end < len(lines) else None
            is_test = any(re.search(r"\btest\b", line) for line in lines[at + 1 : end])
            if function and (is_test or (suite and function[1])):
                yield Marker(file, at + 1, function[3], numbers)
            else:
                yield Marker(file, at + 1, "a comment", numbers, "the comment is above no test")


def typescript_markers() -> Iterator[Marker]:
    for file in sorted((ROOT / "js/packages").glob("*/test/*.ts")):
        lines = file.read_text(encoding="utf-8").splitlines()
        for at, numbers in comments(lines):
            following = [*lines[at + 1 : at + 3], ""]
            test = TYPESCRIPT_TEST.match(following[0])
            if test:
                name = test[2] or following[1].strip().strip("\"'`,")
                yield Marker(file, at + 1, name, numbers)
            else:
                yield Marker(file, at + 1, "a comment", numbers, "the comment is above no test")


def comments(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    for at, line in enumerate(lines):
        if found := COMMENT.fullmatch(line):
            yield at, found[1].split(", ")


def scenario_markers() -> Iterator[Marker]:
    for file in sorted((ROOT / "spec/scenarios").glob("*.json")):
        text = file.read_text(encoding="utf-8")
        for scenario in json.loads(text):
            line = text[: text.index(json.dumps(scenario["name"], ensure_ascii=False))].count("\n") + 1
            yield Marker(file, line, scenario["name"], scenario["promise"].split())


if __name__ == "__main__":
    sys.exit(main())
