#!/usr/bin/env python3
"""Shape check: import circles, crates that the binding names, hand-written subjects, forks, sizes
of files and folders, and lines of each layer, beside maxima that may fall and never rise.

Usage: python tools/check_shape.py            (exit code 1 for each count beside its maximum)
       python tools/check_shape.py --counts   (all counts)
       python tools/check_shape.py --lower    (writes lower maxima)

The rules are in tools/shape.toml, the maxima in tools/shape-maxima.toml. Python 3.11 and git are
all that the check needs.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from check_imports import imports, without_comments
from check_prose import is_test, tracked
from maxima import Key, Measure, compare

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("mod", "lib", "main", "__init__")
RUST_ROOT = re.compile(r"(?<![\w:$])(?<!in )(crate|(?:super::)*super)::")
USE_HEAD = re.compile(r"\s*((?:\w+::)*)(\w+|\*|\{)")
USE_BETWEEN = re.compile(r"\s*(?:as\s+\w+)?\s*,?\s*")

Module = tuple[str, ...]
Files = Mapping[str, str]
"""Texts by path from the root of the project."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the shape of the tree against tools/shape.toml.")
    parser.add_argument("--counts", action="store_true", help="print all counts")
    parser.add_argument("--lower", action="store_true", help="write lower maxima where counts have fallen")
    options = parser.parse_args()
    rules = tomllib.loads((ROOT / "tools/shape.toml").read_text(encoding="utf-8"))
    exempt = tomllib.loads((ROOT / "tools/prose.toml").read_text(encoding="utf-8"))["exempt"]
    listed = [path for path in tracked(["crates", "python", "js"], exempt) if not path.endswith(".md")]
    measures = measure({path: (ROOT / path).read_text(encoding="utf-8") for path in listed}, rules)
    if options.counts:
        for (rule, unit), found in sorted(measures.items()):
            print(f"{rule}: {unit}: {found.count}")
        return 0
    return compare(measures, ROOT / "tools/shape-maxima.toml", rules["fixes"], lower=options.lower)


def measure(files: Files, rules: dict[str, Any]) -> dict[Key, Measure]:
    """All counts of a tree."""
    measures: dict[Key, Measure] = defaultdict(Measure)
    layers = {path: layer_of(path, rules["layers"]) for path in files}
    code = {path: code_of(path, text) for path, text in files.items() if layers[path] not in ("", "tests")}
    for rule, limits in rules["named"].items():
        pattern = re.compile("|".join(limits["patterns"]))
        for path, text in code.items():
            found = pattern.search(text) if within(path, limits) else None
            if found:
                measures[rule, limits.get("in", "product").rstrip("/")].add(f"{path}: {found.group()}")
    sizes(measures, files, layers, rules["sizes"])
    for name, graph in graphs(code, rules["circles"]):
        circle = max(circles(graph), key=len, default=[])
        parts = [f"{path} imports {', '.join(sorted(graph[path] & set(circle)))}" for path in sorted(circle)]
        measures["import circle", name] = Measure(len(circle), parts)
    return measures


def layer_of(path: str, layers: Mapping[str, str]) -> str:
    """The layer of a file; empty if the file is neither product nor test."""
    if is_test(path) or PurePosixPath(path).name == "tests.rs":
        return "tests"
    return next((name for name, pattern in layers.items() if fnmatchcase(path, pattern)), "")


def within(path: str, limits: Mapping[str, str]) -> bool:
    outside = limits.get("outside", "")
    return path.startswith(limits.get("in", "")) and not (outside and path.startswith(outside))


def code_of(path: str, text: str) -> str:
    """A file without comments, docstrings, test modules and imports for types alone."""
    if path.endswith(".rs"):
        return without_comments(text)
    if path.endswith((".ts", ".tsx")):
        return re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", text, flags=re.DOTALL)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            node.body = [ast.Pass()]
    return ast.unparse(tree)


def sizes(measures: dict[Key, Measure], files: Files, layers: Mapping[str, str], limits: Mapping[str, int]) -> None:
    """Lines of each layer, long files and flat folders."""
    lines: Counter[str] = Counter()
    folders: Counter[tuple[str, str]] = Counter()
    for path, layer in layers.items():
        if not layer:
            continue
        kind = "tests" if layer == "tests" else "product"
        count = files[path].count("\n")
        lines[layer] += count
        folders[kind, str(PurePosixPath(path).parent)] += 1
        if count > limits["file_lines"]:
            measures["long files", kind].add(f"{path}: {count} lines, at most {limits['file_lines']}")
    for (kind, folder), count in sorted(folders.items()):
        if count > limits["folder_files"]:
            measures["flat folders", kind].add(f"{folder}: {count} files, at most {limits['folder_files']}")
    for layer, count in lines.items():
        step = limits["lines_step"]
        measures["lines", layer] = Measure(-(-count // step) * step, [f"{count} lines, counted in steps of {step}"])


def graphs(code: Files, rules: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, set[str]]]]:
    """Each crate and package with its files, and the files that each of them imports."""
    for pattern in rules["crates"]:
        for root in sorted({path[: path.index("/src/") + 5] for path in code if fnmatchcase(path, pattern)}):
            files = {path: text for path, text in code.items() if path.startswith(root) and path.endswith(".rs")}
            yield root.removesuffix("/"), graph_of(files, root, rust_imports)
    for root in rules["packages"]:
        files = {path: text for path, text in code.items() if path.startswith(root) and path.endswith(".py")}
        yield root.removesuffix("/"), graph_of(files, root, python_imports)


def graph_of(files: Files, root: str, find: Callable[[str, Module, bool], Iterator[Module]]) -> dict[str, set[str]]:
    """The files of one crate or package, and the files that each of them imports."""
    modules = {module_of(path.removeprefix(root)): path for path in files}
    graph: dict[str, set[str]] = {path: set() for path in files}
    for module, path in modules.items():
        is_folder = PurePosixPath(path).stem in FOLDERS
        for found in find(files[path], (PurePosixPath(root).name, *module), is_folder):
            longest = next(found[:end] for end in range(len(found), -1, -1) if found[:end] in modules or not end)
            if longest in modules and modules[longest] != path:
                graph[path].add(modules[longest])
    return graph


def module_of(path: str) -> Module:
    parts = PurePosixPath(path).with_suffix("").parts
    return parts[:-1] if parts[-1] in FOLDERS else parts


def rust_imports(code: str, here: Module, _is_folder: bool) -> Iterator[Module]:
    """The paths that a file names with `crate::` and `super::`, in `use` and elsewhere."""
    for found in RUST_ROOT.finditer(code):
        supers = found.group(1).count("super")
        if found.group(1) == "crate":
            base: Module = ()
        elif len(here) - 1 >= supers:
            base = here[1 : len(here) - supers]
        else:
            continue
        yield from (base + path for path in use_paths(code, found.end())[0])


def use_paths(code: str, at: int) -> tuple[list[Module], int]:
    """The paths of one `use` tree, and where the tree ends."""
    head = USE_HEAD.match(code, at)
    if head is None:
        return [], at
    prefix = tuple(head.group(1).split("::")[:-1])
    if head.group(2) != "{":
        return [(*prefix, head.group(2))], head.end()
    found, at, before = [], head.end(), at
    while at > before:
        before = at
        paths, at = use_paths(code, at)
        found += [prefix + path for path in paths]
        between = USE_BETWEEN.match(code, at)
        at = between.end() if between else at
    return found, at + 1


def python_imports(code: str, here: Module, is_folder: bool) -> Iterator[Module]:
    """The modules that a file imports anywhere, as paths inside of their package."""
    names = set(imports(code, list(here if is_folder else here[:-1])))
    for name in sorted(names):
        package, *path = name.split(".")
        # `from package import module` imports the module, and of the package nothing else.
        if package == here[0] and not any(other.startswith(name + ".") for other in names):
            yield tuple(path)


def circles(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Files that reach each other over imports: components of two files and more."""
    reached = {start: reach(graph, start) for start in graph}
    left = set(graph)
    while left:
        start = left.pop()
        circle = [start, *(other for other in reached[start] & left if start in reached[other])]
        left.difference_update(circle)
        if len(circle) > 1:
            yield circle


def reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += graph[one]
    return found


if __name__ == "__main__":
    sys.exit(main())
