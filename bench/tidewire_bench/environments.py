"""Virtual environments for the packages of peers, made on demand from a file of requirements."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .machine import text_of
from .programs import Say, problem_of


@dataclass
class Environment:
    """A virtual environment for peers: its Python, what it has, and what could not be installed."""

    python: str
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def environment_of(folder: Path, requirements: Path, say: Say, *, build: bool) -> Environment:
    """Makes an environment, unless it was made from the same requirements and lacks nothing."""
    wanted = [line.strip() for line in text_of(requirements).splitlines() if line.strip() and line[0] != "#"]
    mark, python = folder / "installed.json", str(folder / "bin" / "python")
    pinned = {name_of(line): line.split("==")[1] for line in wanted}
    if text_of(mark) == json.dumps(wanted) and Path(python).is_file():
        return Environment(python, pinned)
    if not build:
        return Environment(python, {}, dict.fromkeys(pinned, f"{folder} has not been made (--no-build)"))
    say(f"installing peers: {', '.join(wanted)}")
    problem = problem_of([sys.executable, "-m", "venv", str(folder)], requirements.parent)
    missing = dict.fromkeys(pinned, problem) if problem else install(python, wanted, requirements)
    if not missing:
        mark.write_text(json.dumps(wanted), encoding="utf-8")
    return Environment(python, {name: pinned[name] for name in pinned if name not in missing}, missing)


def install(python: str, wanted: Sequence[str], requirements: Path) -> dict[str, str]:
    """Installs all at once, or else what can be had one by one; why the rest can't."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if problem_of([*pip, "-r", str(requirements)], requirements.parent) is None:
        return {}
    problems = {name_of(line): problem_of([*pip, line], requirements.parent) for line in wanted}
    return {name: problem for name, problem in problems.items() if problem}


def name_of(requirement: str) -> str:
    """psycopg for psycopg[binary]==3.3.9."""
    return re.split(r"[\[=]", requirement)[0]
