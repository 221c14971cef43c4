#!/usr/bin/env python3
"""Documentation site: lays the pages of the repository out, adds the API reference, and calls
MkDocs.

Usage: python tools/site/build.py

The site goes to out/site and opens from the folder, without a server. A broken link, a missing
anchor, a page outside of the navigation and a public name without a section are errors.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from mkdocs.__main__ import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / ".make/site"
LAID = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs", "spec", "bench", "js"]
PAGE_SUFFIXES = {".md", ".png", ".svg", ".toml", ""}
SKIPPED = {"node_modules", "rust-api", "vectors", "scenarios", "target", "peers"}
SCRIPTS = ROOT / ".make/site-scripts"

# Title of a page of the API reference, and the modules whose public names the page lists.
SECTIONS = {
    "Nodes and actors": ["node", "_binding", "_node", "_runtime", "subscription", "supervision", "dead_letters"],
    "Agents": ["agents"],
    "Pools": ["pools"],
    "Services and objects": ["services", "objects", "_typed"],
    "Streams, buckets, leases and commands": ["streams"],
    "Campaigns": ["_campaigns"],
    "Links and hubs": ["links"],
    "Configuration": ["config", "broker", "link_config", "service_config"],
    "Errors": ["errors"],
}
RUNS = {"Run": "Campaigns"}
"""Names whose module says nothing about their section."""


def main() -> int:
    sys.path.insert(0, str(ROOT / "python"))
    lay_out()
    api_pages()
    command_page()
    cli(["build", "--strict", "--config-file", str(ROOT / "tools/site/mkdocs.yml")], standalone_mode=False)
    print(f"site: {ROOT / 'out/site/index.html'}")
    return 0


def lay_out() -> None:
    """Copy the pages to a folder of their own, at the places that their links expect."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for name in LAID:
        place = ROOT / name
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            inner = path.relative_to(ROOT)
            if path.is_file() and path.suffix in PAGE_SUFFIXES and not SKIPPED & set(inner.parts):
                (PAGES / inner).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, PAGES / inner)
    assets = PAGES / "assets"
    shutil.copytree(ROOT / "tools/site/assets", assets)
    for script in SCRIPTS.glob("*.js"):
        shutil.copyfile(script, assets / script.name)


def api_pages() -> None:
    """Write one page for each section, with each public name of ``tidewire``."""
    folder = PAGES / "docs/reference/api"
    folder.mkdir()
    sections = sections_of(ROOT / "python/tidewire/__init__.py")
    for title, names in sections.items():
        inherited = f"\n    options: {{ inherited_members: {str(title != 'Errors').lower()} }}"
        body = "\n\n".join(f"::: tidewire.{name}{inherited}" for name in names)
        (folder / file_of(title)).write_text(f"# {title}\n\n{body}\n", encoding="utf-8")
    (folder / "testing.md").write_text("# Testing\n\n::: tidewire.testing\n", encoding="utf-8")
    rows = "\n".join(
        f"| [{title}]({file_of(title)}) | {', '.join(f'[`{name}`][tidewire.{name}]' for name in names)} |"
        for title, names in sections.items()
    )
    text = f"# Python API\n\nEach public name of `tidewire`, by subject.\n\n| page | names |\n|---|---|\n{rows}\n"
    (folder / "index.md").write_text(text, encoding="utf-8")


def command_page() -> None:
    """Write the page of all commands, with their options."""
    typer = [ROOT / ".venv/bin/python", "-m", "typer", "tidewire.cli", "utils", "docs", "--name", "tidewire"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    text = subprocess.run(typer, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    text = re.sub(r"^# .*$", "# Commands and options", text, count=1, flags=re.MULTILINE)
    (PAGES / "docs/reference/commands.md").write_text(text, encoding="utf-8")


def file_of(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()) + ".md"


def sections_of(package: Path) -> dict[str, list[str]]:
    [listed] = [
        ast.literal_eval(node.value)
        for node in ast.parse(package.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "_NAMES"
    ]
    modules = {name: module.split(".")[1] for module, names in listed.items() for name in names.split()}
    titles = {module: title for title, listed in SECTIONS.items() for module in listed}
    sections: dict[str, list[str]] = {title: [] for title in SECTIONS}
    lost = defaultdict(list)
    for name in sorted(set(modules) - {"__version__"}, key=str.lower):
        title = RUNS.get(name) or titles.get(modules[name])
        (sections[title] if title else lost[modules[name]]).append(name)
    if lost:
        sys.exit(f"api: no section for {dict(lost)}: add the modules to SECTIONS in tools/site/build.py")
    return sections


if __name__ == "__main__":
    sys.exit(main())
