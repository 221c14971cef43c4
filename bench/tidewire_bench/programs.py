"""The programs that run workloads: where they are, how they are built, how one is run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .model import Program, Run

Say = Callable[[str], None]

BUILD_TIMEOUT_S = 1_800.0
NO_CHECKOUT = "needs a checkout of the repository: no bench/ folder was found from here; TIDEWIRE_BENCH may name it"


class RunFailed(Exception):
    """A workload ended without its line of JSON."""


@dataclass
class Programs:
    """Commands for the programs that can be run here, and why the others can't."""

    commands: dict[Program, list[str]] = field(default_factory=dict)
    missing: dict[Program, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def can(self, run: Run) -> bool:
        """True if the run's program is there."""
        return run.program in self.commands

    def figures(self, run: Run, timeout_s: float) -> list[dict[str, float]]:
        """Runs one workload in a process of its own; what each of its rounds found.

        Raises:
            RunFailed: if it fails, hangs or prints something else.
        """
        command = [*self.commands[run.program], *run.arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment()
            )
        except subprocess.TimeoutExpired:
            raise RunFailed(f"was not done after {timeout_s:.0f} s") from None
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise RunFailed(said[-1] if said else f"exit status {done.returncode}")
        return [json.loads(line)["figures"] for line in lines]


def environment() -> dict[str, str]:
    """The environment of a workload, which finds this package."""
    places = [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def bench_folder() -> Path | None:
    """The ``bench`` folder of the repository, from the working directory or from where this package
    lies.
    """
    chosen = os.environ.get("TIDEWIRE_BENCH")
    places = [Path(chosen)] if chosen else []
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        places += [parent / "bench" for parent in (start, *start.parents)]
    return next((place for place in places if (place / "rust" / "Cargo.toml").is_file()), None)


def prepare(bench: Path | None, needed: set[Program], say: Say, *, build: bool = True) -> Programs:
    """Builds what can be built and finds the rest."""
    programs = Programs()
    programs.commands["python-ours"] = [sys.executable, "-m", "tidewire_bench.workloads"]
    if bench is None:
        programs.missing.update(dict.fromkeys(needed - {"python-ours"}, NO_CHECKOUT))
        return programs
    programs.commands["python-peers"] = [sys.executable, str(bench / "python" / "peers.py")]
    if needed & {"rust", "rust-mimalloc"}:
        prepare_rust(bench / "rust", programs, say, build=build)
    if "pekko" in needed:
        prepare_pekko(bench / "pekko", programs, say, build=build)
    return programs


def prepare_rust(folder: Path, programs: Programs, say: Say, *, build: bool) -> None:
    """Both programs of the Rust package; cargo itself knows whether there is anything to do."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", folder / "target"))
    binaries: dict[Program, Path] = {
        "rust": target / "release" / "engine-bench",
        "rust-mimalloc": target / "release" / "engine-bench-mimalloc",
    }
    problem = "cargo is not installed" if shutil.which("cargo") is None else None
    if build and problem is None:
        say("building the Rust contenders (some minutes the first time)")
        problem = problem_of(["cargo", "build", "--release", "--target-dir", str(target)], folder)
    for program, binary in binaries.items():
        if binary.is_file() and (problem is None or not build or shutil.which("cargo") is None):
            programs.commands[program] = [str(binary)]
        else:
            programs.missing[program] = problem or f"{binary} has not been built"


def prepare_pekko(folder: Path, programs: Programs, say: Say, *, build: bool) -> None:
    """The Java program, if there is a Java and a Maven."""
    if shutil.which("java") is None:
        programs.missing["pekko"] = "java is not installed"
        return
    jar = folder / "target" / "pekko-bench-0.1.0.jar"
    if build and stale(jar, folder):
        if shutil.which("mvn") is None:
            programs.missing["pekko"] = "mvn is not installed"
            return
        say("building the Pekko contender")
        problem = problem_of(["mvn", "-q", "-B", "package"], folder)
        if problem is not None:
            programs.missing["pekko"] = problem
            return
    if not jar.is_file():
        programs.missing["pekko"] = f"{jar} has not been built"
        return
    path = os.pathsep.join([str(jar), str(folder / "target" / "dependency" / "*")])
    programs.commands["pekko"] = ["java", "-Xmx4g", "-cp", path, "bench.Main"]


def stale(jar: Path, folder: Path) -> bool:
    """True if a source is newer than its build."""
    if not jar.is_file():
        return True
    sources = [folder / "pom.xml", *(folder / "src").rglob("*.java")]
    return any(source.stat().st_mtime > jar.stat().st_mtime for source in sources)


def problem_of(command: list[str], folder: Path) -> str | None:
    """Runs a build; what went wrong, if anything did."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"{command[0]} was not done after {BUILD_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return None
    output = (done.stderr or done.stdout).strip().splitlines()
    telling = [line for line in output if "error" in line.lower()] or output or ["no output"]
    return f"{' '.join(command[:2])} failed: {telling[0]}"
