#!/usr/bin/env python3
"""Checks that crates and modules import only what tools/imports.toml lets them.

Usage: python tools/check_imports.py
Prints one line for each breach and exits 1 if there is any.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    table = tomllib.loads((ROOT / "tools/imports.toml").read_text(encoding="utf-8"))
    breaches = [*check_crates(table["crates"]), *check_sources(table["crates"]), *check_python(table["python"])]
    for breach in breaches:
        print(breach, file=sys.stderr)
    print(f"import table: {len(table['crates'])} crates and {table['python']['package']} checked, {len(breaches)} breaches")
    return 1 if breaches else 0


def check_crates(crates: dict[str, Any]) -> list[str]:
    """Dependencies that a crate declares and may not have, and crates without a row."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)["packages"]
    breaches = [f"{package['name']}: has no row in tools/imports.toml" for package in packages if package["name"] not in crates]
    for package in packages:
        allowed = set(crates.get(package["name"], {}).get("may_use", []))
        used = {dependency["name"] for dependency in package["dependencies"] if dependency["kind"] in (None, "build")}
        breaches += [f"{package['name']}: uses {name}, which tools/imports.toml does not allow" for name in sorted(used - allowed)]
    return breaches


def check_sources(crates: dict[str, Any]) -> list[str]:
    """Words in the sources that a crate must never use, or only in certain files."""
    breaches = []
    for name, rules in crates.items():
        base = ROOT / rules["sources"]
        for path in sorted(base.rglob("*.rs")):
            code = _without_comments(path.read_text(encoding="utf-8"))
            where = path.relative_to(base).as_posix()
            forbidden = list(rules.get("never", []))
            forbidden += [word for word, files in rules.get("only_in", {}).items() if where not in files]
            breaches += [f"{path.relative_to(ROOT)}: {name} must not use {word!r} here" for word in forbidden if word in code]
    return breaches


def check_python(rules: dict[str, Any]) -> list[str]:
    """Imports of the compiled part outside of its one module, and what `import tidewire` loads too early."""
    package = ROOT / rules["package"]
    pattern = re.compile(rf"^\s*(?:from|import)\s+{re.escape(rules['binding'])}\b", re.MULTILINE)
    breaches = [
        f"{path.relative_to(ROOT)}: import the binding through {rules['binding_only_in'][0]}"
        for path in sorted(package.rglob("*.py"))
        if path.name not in rules["binding_only_in"] and pattern.search(path.read_text(encoding="utf-8"))
    ]
    if not list(package.glob("_tidewire*.so")):
        print("import table: the extension is not built, so what `import tidewire` loads was not checked")
        return breaches
    code = f"import sys, tidewire; print(*sorted(set({rules['lazy']!r}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=package.parent, capture_output=True, text=True, check=False)
    if loaded.returncode != 0:
        return [*breaches, f"import tidewire fails: {loaded.stderr.strip().splitlines()[-1]}"]
    return breaches + [f"import tidewire loads {name}, which only its users should" for name in loaded.stdout.split()]


def _without_comments(code: str) -> str:
    """The code before its first test module, without line comments."""
    code = re.split(r"^#\[cfg\(test\)\]\nmod ", code, maxsplit=1, flags=re.MULTILINE)[0]
    return re.sub(r"//.*", "", code)


if __name__ == "__main__":
    sys.exit(main())
