#!/usr/bin/env python3
"""Prose check: retired names, first sentences, openings of sentences, line lengths and
abbreviations.

Usage: python tools/check_prose.py [PATH ...]   (all tracked files without a path)
       python tools/check_prose.py --lower      (writes lower maxima)

The rules and their word lists are in tools/prose.toml. Each breach is one line, FILE:LINE: RULE:
TEXT, and the exit code is 1 if there is any. Python 3.11 and git are all that the check needs.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from maxima import Key, Measure, compare

ROOT = Path(__file__).resolve().parent.parent
MAXIMA = ROOT / "tools/prose-maxima.toml"
DECLARATIONS = {
    ".rs": re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union|type) (\w+)", re.MULTILINE),
    ".py": re.compile(r"^\s*class (\w+)", re.MULTILINE),
    ".pyi": re.compile(r"^\s*class (\w+)", re.MULTILINE),
    **dict.fromkeys(
        (".ts", ".tsx"),
        re.compile(r"^\s*(?:export )?(?:declare )?(?:abstract )?(?:class|interface|enum|type) (\w+)", re.MULTILINE),
    ),
}
PRODUCT = re.compile(r"(crates/[^/]+/src|python/(src|tidewire)|js/packages/[^/]+/src)/.*(?<!/tests\.rs)")
IDENTIFIER = re.compile(r"\b_?([a-z]\w*)\b")
STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
NO_CODE = {
    ".rs": (re.compile(r"//.*"), STRING),
    ".py": (re.compile(r'r?""".*?"""', re.DOTALL), STRING, re.compile(r"#.*")),
    ".ts": (re.compile(r"/\*.*?\*/", re.DOTALL), STRING, re.compile(r"`[^`]*`"), re.compile(r"//.*")),
}
RUST_COMMENT = re.compile(r"^\s*(//[/!]?)(?: (.*))?$")
SENTENCE = re.compile(r"(?:^|(?<=[.!?:]) )([A-Z][\w']*)\b([^.!?]*[.!?]?)")
CODE_SPAN = re.compile(r"`+[^`]*`+")
ABBREVIATION = re.compile(r"\b(?!P\d)[A-Z][A-Z0-9]{1,5}\b")


@dataclass(frozen=True)
class Line:
    """One line of prose: its number, its column count in the file, and its text without the comment
    mark.
    """

    number: int
    width: int
    text: str


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks names and prose against tools/prose.toml.")
    parser.add_argument("paths", nargs="*", help="files or folders (default: all tracked files)")
    parser.add_argument("--lower", action="store_true", help="write lower maxima where breaches were removed")
    options = parser.parse_args()
    rules = tomllib.loads((ROOT / "tools/prose.toml").read_text(encoding="utf-8"))
    breaches = [(path, *breach) for path in tracked(options.paths, rules["exempt"]) for breach in check(path, rules)]
    if options.paths:
        for path, number, rule, text in breaches:
            print(f"{path}:{number}: {rule}: {text}")
        print(f"prose: {len(breaches)} breaches")
        return 1 if breaches else 0
    measures: dict[Key, Measure] = defaultdict(Measure)
    for path, number, rule, text in breaches:
        measures[rule, folder_of(path)].add(f"{path}:{number}: {text}")
    return compare(measures, MAXIMA, {}, lower=options.lower)


def folder_of(path: str) -> str:
    return "/".join(path.split("/")[:2])


def tracked(paths: list[str], exempt: list[str]) -> Iterator[str]:
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        known = path.suffix in (*DECLARATIONS, ".md") and path.is_file() and not path.is_symlink()
        if known and not any(PurePosixPath(name).match(pattern) for pattern in exempt):
            yield name


def check(path: str, rules: dict[str, Any]) -> Iterator[tuple[int, str, str]]:
    text = (ROOT / path).read_text(encoding="utf-8")
    suffix = PurePosixPath(path).suffix
    if not is_test(path):
        yield from retired_names(path, text, rules["retired"])
    lines = sorted(prose(text, suffix), key=lambda line: line.number)
    if suffix != ".md" and not is_test(path):
        yield from first_sentence(lines, text, suffix, set(rules["openings"]))
    yield from openings(lines, set(rules["openings"]))
    yield from long_lines(lines, rules["columns"], rules["table_cell"])
    if suffix == ".md":
        yield from abbreviations(lines, text, set(rules["abbreviations"]))


def is_test(path: str) -> bool:
    return bool({"tests", "test", "fuzz_targets"} & set(path.split("/")))


def retired_names(path: str, text: str, retired: dict[str, list[str]]) -> Iterator[tuple[int, str, str]]:
    """File names, declared types and identifiers of product code that the project has given up."""
    file = PurePosixPath(path)
    if file.name in retired["files"]:
        yield 1, "retired file name", file.name
    if file.suffix in DECLARATIONS:
        for found in DECLARATIONS[file.suffix].finditer(text):
            if found.group(1) in retired["types"]:
                yield text.count("\n", 0, found.start(1)) + 1, "retired type name", found.group(1)
        if PRODUCT.fullmatch(path):
            for number, line in enumerate(code(text, file.suffix), 1):
                for found in IDENTIFIER.finditer(line):
                    if found.group(1) in retired["names"]:
                        yield number, "retired name", found.group()


def code(text: str, suffix: str) -> Iterator[str]:
    """The lines without strings and comments."""
    for pattern in NO_CODE[suffix[:3]]:
        text = pattern.sub(lambda found: "\n" * found.group().count("\n"), text)
    return iter(text.splitlines())


def prose(text: str, suffix: str) -> Iterator[Line]:
    """The lines of comments, docstrings or pages, without code blocks."""
    match suffix:
        case ".rs":
            yield from rust_prose(text)
        case ".ts" | ".tsx":
            yield from typescript_prose(text)
        case ".md":
            yield from page_prose(text)
        case _:
            yield from python_prose(text)


def rust_prose(text: str) -> Iterator[Line]:
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        found = RUST_COMMENT.match(line)
        if not found:
            fenced = False
            continue
        said = found.group(2) or ""
        fence = said.lstrip().startswith("```")
        fenced ^= fence
        if not fenced and not fence:
            yield Line(number, len(line), said)


def typescript_prose(text: str) -> Iterator[Line]:
    inside = fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        opens = not inside and stripped.startswith("/*")
        inside = inside or opens
        if not inside and not stripped.startswith("//"):
            continue
        said = re.sub(r"\s*\*/$", "", re.sub(r"^(?:/\*+|\*+(?!/)|//)\s?", "", stripped))
        inside = inside and "*/" not in stripped
        fence = said.startswith("```")
        fenced = (fenced ^ fence) and (inside or opens)
        if not fenced and not fence:
            yield Line(number, len(line.expandtabs(4)), said.removesuffix("*/").rstrip())


def python_prose(text: str) -> Iterator[Line]:
    source = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(
            r"#(!|\s*(type|noqa|pragma|fmt|ruff|mypy|pyright):?)", token.string
        ):
            yield Line(token.start[0], len(source[token.start[0] - 1]), token.string.lstrip("#").strip())
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
            continue
        first = node.body[0]
        if not (
            isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        ):
            continue
        block = False
        for number in range(first.lineno, (first.end_lineno or first.lineno) + 1):
            said = source[number - 1].strip().removeprefix('r"""').strip('"').strip()
            indent = len(source[number - 1]) - len(source[number - 1].lstrip())
            block = (indent > first.col_offset + 3 and block) or said.endswith("::")
            if not said.startswith((">>>", "...")) and not block:
                yield Line(number, len(source[number - 1]), said)


def page_prose(text: str) -> Iterator[Line]:
    fenced = marked = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.lstrip().startswith(("```", "~~~"))
        fenced ^= fence
        marked = (marked or line.startswith("<!-- figures")) and not line.startswith("<!-- end")
        if not fenced and not fence and not marked:
            yield Line(number, len(line), line)


def first_sentence(lines: list[Line], text: str, suffix: str, banned: set[str]) -> Iterator[tuple[int, str, str]]:
    """A product module begins with a sentence that names the module."""
    if not text.strip():
        return
    marks: dict[str, str | tuple[str, ...]] = {
        ".rs": "//!",
        ".ts": ("/**", "//"),
        ".tsx": ("/**", "//"),
        ".py": ('"""', 'r"""', "#!", "# "),
        ".pyi": ('"""', 'r"""', "# "),
    }
    if not text.lstrip().startswith(marks[suffix]) or not lines:
        yield 1, "no first sentence", "begin the module with one sentence in nouns of the field"
        return
    opening = lines[0].text if not (suffix == ".py" and text.startswith("#!")) else ""
    word = re.match(r"[\w']+", opening)
    if word and word.group() in banned | {"How", "Where", "When", "It", "This", "These", "Those", "They"}:
        yield lines[0].number, "first sentence", opening


def openings(lines: list[Line], banned: set[str]) -> Iterator[tuple[int, str, str]]:
    """Sentences whose first word hides their subject. A question is no breach."""
    for at, line in enumerate(lines):
        text = CODE_SPAN.sub("X", line.text).lstrip("#>*-| ").strip()
        begins = at == 0 or lines[at - 1].number != line.number - 1 or ends_sentence(lines[at - 1].text)
        for found in SENTENCE.finditer(text):
            if found.group(1) not in banned or (
                found.start() == 0 and not begins and not line.text.startswith(("#", "|", "-"))
            ):
                continue
            rest = found.group(2)
            follows = lines[at + 1].text if at + 1 < len(lines) and not rest.endswith((".", "!", "?")) else ""
            if not (rest + " " + re.split(r"(?<=[.!?])", follows)[0]).rstrip().endswith("?"):
                yield line.number, "opening", line.text.strip()
                break


def ends_sentence(text: str) -> bool:
    return not text.strip() or text.rstrip().endswith((".", "!", "?", ":", "```")) or text.lstrip().startswith("#")


def long_lines(lines: list[Line], columns: int, cell: int) -> Iterator[tuple[int, str, str]]:
    for line in lines:
        if line.text.lstrip().startswith("|"):
            widest = max((len(found.strip()) for found in line.text.split("|")), default=0)
            if widest > cell:
                yield line.number, f"table cell over {cell} characters", f"{widest} characters"
        elif line.width > columns and " " in line.text.strip() and "://" not in line.text:
            yield line.number, f"line over {columns} columns", f"{line.width} columns"


def abbreviations(lines: list[Line], text: str, known: set[str]) -> Iterator[tuple[int, str, str]]:
    """Abbreviations that are neither common in the field nor explained on their page as `long form
    (ABC)`.
    """
    said: set[str] = set()
    for line in lines:
        for found in ABBREVIATION.findall(re.sub(r"\]\([^)]*\)", "", CODE_SPAN.sub("", line.text))):
            if found not in known | said and f"({found})" not in text and f"{found} (" not in text:
                said.add(found)
                yield line.number, "abbreviation", f"{found}: explain it once on this page, as in `long form ({found})`"


if __name__ == "__main__":
    sys.exit(main())
