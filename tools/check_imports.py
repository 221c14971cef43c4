#!/usr/bin/env python3
"""Checks that crates and modules import only what tools/imports.toml lets them.

Usage: python tools/check_imports.py Prints one line for each breach and exits 1 if there is any.
Needs cargo, and nothing but Python 3.11.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    table = tomllib.loads((ROOT / "tools/imports.toml").read_text(encoding="utf-8"))
    crates, python = table["crates"], table["python"]
    breaches = [*check_dependencies(crates), *check_sources(crates), *check_binding(python), *check_lazy(python)]
    for breach in breaches:
        print(breach, file=sys.stderr)
    print(f"import table: {len(crates)} crates and {python['package']} checked, {len(breaches)} breaches")
    return 1 if breaches else 0


def check_dependencies(crates: dict[str, Any]) -> Iterator[str]:
    """Crates without a row, and dependencies that a crate must not have, or only behind a
    feature.
    """
    for package in workspace_packages():
        name = package["name"]
        if name not in crates:
            yield f"{name}: has no row in tools/imports.toml: add [crates.{name}]"
            continue
        used = {used["name"]: used["optional"] for used in package["dependencies"] if used["kind"] != "dev"}
        for other in sorted(used.keys() - set(crates[name]["may_use"])):
            yield f"{name}: depends on {other}, which tools/imports.toml does not allow"
        for other in crates[name].get("optional", []):
            if not used.get(other, True):
                yield f"{name}: depends on {other} always: write `optional = true`, and name it in a feature"


def check_sources(crates: dict[str, Any]) -> Iterator[str]:
    """Paths that the sources of a crate name and must never, or only in other files."""
    for name, rules in crates.items():
        base = ROOT / rules["sources"]
        files = sorted(base.rglob("*.rs"))
        if not files:
            yield f"{name}: no sources in {rules['sources']}: fix the row in tools/imports.toml"
        for file in files:
            code = without_comments(file.read_text(encoding="utf-8"))
            where = file.relative_to(base).as_posix()
            elsewhere = [path for path, homes in rules.get("only_in", {}).items() if where not in homes]
            for path in [*rules.get("never", []), *elsewhere]:
                if names(code, path):
                    yield f"{file.relative_to(ROOT)}: {name} must not name {path!r} here"


def check_binding(rules: dict[str, Any]) -> Iterator[str]:
    """Modules that import the compiled part past the one module that may."""
    package = ROOT / rules["package"]
    for file in sorted(package.rglob("*.py")):
        folder = [package.name, *file.relative_to(package).parts[:-1]]
        found = imports(file.read_text(encoding="utf-8"), folder)
        if file.name not in rules["binding_only_in"] and rules["binding"] in set(found):
            homes = " or ".join(rules["binding_only_in"])
            yield f"{file.relative_to(ROOT)}: imports {rules['binding']}: import it through {homes}"


def check_lazy(rules: dict[str, Any]) -> Iterator[str]:
    """Modules that `import tidewire` loads although only their users should. Needs the built
    extension.
    """
    package = ROOT / rules["package"]
    if not list(package.glob("_tidewire*.so")):
        print("import table: the extension is not built, so what `import tidewire` loads was not checked")
        return
    code = f"import sys, {package.name}; print(*sorted(set({rules['lazy']!r}) & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, cwd=package.parent, capture_output=True, text=True, check=False)
    if loaded.returncode != 0:
        yield f"import {package.name} fails: {loaded.stderr.strip().splitlines()[-1]}"
    for name in loaded.stdout.split():
        yield f"import {package.name} loads {name}: import it inside of the function that needs it"


def workspace_packages() -> list[dict[str, Any]]:
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    packages: list[dict[str, Any]] = json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]
    return packages


def without_comments(code: str) -> str:
    """The code before its first test module, without line comments."""
    code = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", code, maxsplit=1, flags=re.MULTILINE)[0]
    return re.sub(r"//.*", "", code)


def names(code: str, path: str) -> bool:
    """True if Rust code names a path. A path that ends in ``::`` is a crate, and must be the first
    part.
    """
    before = r"(?<![\w:])" if path.endswith("::") else r"(?<!\w)"
    after = r"\b" if path[-1].isalnum() else ""
    return re.search(before + re.escape(path) + after, code) is not None


def imports(code: str, folder: list[str]) -> Iterator[str]:
    """The full names of all modules that a file of a package may import, wherever in the file."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{name.name}" for name in node.names)


if __name__ == "__main__":
    sys.exit(main())
