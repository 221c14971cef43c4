"""The programs that run the workloads of agents and pools."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .model import Program
from .programs import NO_CHECKOUT, Programs

RAY_TIMEOUT_S = 60.0
RAY_PYTHON = "TIDEWIRE_BENCH_RAY"


def prepare(bench: Path | None, needed: set[Program]) -> Programs:
    """Finds what can be run here; nothing needs to be built."""
    programs = Programs()
    programs.commands["agents-ours"] = [sys.executable, "-m", "tidewire_bench.agents_workloads"]
    programs.commands["pools-ours"] = [sys.executable, "-m", "tidewire_bench.pool_workloads"]
    if bench is None:
        programs.missing.update(dict.fromkeys(needed - {"agents-ours", "pools-ours"}, NO_CHECKOUT))
        return programs
    folder = bench / "python"
    programs.commands["agents-peers"] = [sys.executable, str(folder / "agent_peers.py")]
    programs.commands["pools-peers"] = [sys.executable, str(folder / "pool_peers.py")]
    if "ray" in needed:
        prepare_ray(folder, programs)
    return programs


def prepare_ray(folder: Path, programs: Programs) -> None:
    """Ray may live in an environment of its own, which a variable names."""
    python = os.environ.get(RAY_PYTHON) or sys.executable
    version, problem = ray_version(python)
    if problem:
        programs.missing["ray"] = problem
    else:
        programs.commands["ray"] = [python, str(folder / "ray_peers.py")]
        programs.versions["ray"] = version


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
