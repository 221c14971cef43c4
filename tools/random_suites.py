#!/usr/bin/env python3
"""Plays random programs and random histories over links with other interpreters than the one that
everything else is tested with.

python tools/random_suites.py                      CPython 3.11 to 3.13, as far as they are on this
machine python tools/random_suites.py --python python3.12  this one alone

The extension is built once, for all of them (``make .make/extension``). Each interpreter gets an
environment of its own below .make/suites. Exits 1 if something is wrong, or no interpreter was
found; one that is missing is named.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from wheel_check import VERSIONS, interpreter

ROOT = Path(__file__).resolve().parent.parent
NEEDED = (
    "msgspec>=0.18",
    "uvloop>=0.21",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "hypothesis>=6",
    "anyio>=4",
    "numpy>=1.26",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="an interpreter; otherwise all that are found")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of the programs, and of the histories on each loop"
    )
    options = parser.parse_args()
    found = {version: interpreter(version) for version in VERSIONS}
    if options.python:
        found = {version_of(options.python): options.python}
    wrong = False
    for version, python in found.items():
        if python is None:
            print(f"CPython {version}: not on this machine, not tried")
            continue
        own = environment(version, python)
        ways = {
            "programs": [own, "python/tests/support/random_programs.py", "--seconds", str(options.seconds), "--dev"],
            "histories": [own, "-m", "pytest", "-q", "-s", "python/tests/links/test_link_histories.py"],
        }
        for what, command in ways.items():
            settings = {**os.environ, "RANDOM_SECONDS": str(options.seconds), "PYTHONPATH": str(ROOT / "python")}
            ended = subprocess.run(command, cwd=ROOT, env=settings, check=False)
            wrong = wrong or ended.returncode != 0
            print(f"CPython {version}, random {what}: {'well' if ended.returncode == 0 else 'WRONG'}", flush=True)
    return 1 if wrong or not any(found.values()) else 0


def version_of(python: str) -> str:
    """Return the version of an interpreter, such as 3.12."""
    said = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(said, check=True, capture_output=True, text=True).stdout.strip()


def environment(version: str, python: str) -> str:
    """Return the interpreter of an environment with all that the suites need."""
    place = ROOT / ".make" / "suites" / version
    own = place / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", str(place)], check=True)
    install = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *NEEDED]
    subprocess.run(install, check=True)
    return str(own)


if __name__ == "__main__":
    sys.exit(main())
