"""The programs that take the roles: an environment for the peers' packages, made on demand, and the
Rust program.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .environments import Environment, environment_of
from .machine import text_of
from .model import Run
from .programs import NO_CHECKOUT, Programs, Say, problem_of
from .rpc_cases import PEERS, Peer
from .rpc_run import Roles, figures_of

REQUIREMENTS = "rpc_requirements.txt"
CROWDS = {"tidewire": "tidewire", "nats-py": "nats"}
CRATES = ("async-nats", "zenoh", "tonic", "tokio")


@dataclass
class RpcPrograms(Programs):
    """Commands of all roles, by contender and form."""

    roles: dict[tuple[str, str], Roles] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)

    def can(self, run: Run) -> bool:
        """True if the roles of the run are there."""
        return run.key in self.roles

    def figures(self, run: Run, timeout_s: float) -> list[dict[str, float]]:
        """Runs one workload; what each of its rounds found."""
        return figures_of(self.roles[run.key], run.arguments, timeout_s)


def prepare(
    bench: Path | None, needed: set[tuple[str, str]], say: Say, *, crowds: bool = False, build: bool = True
) -> RpcPrograms:
    """Installs and builds what the contenders need, and says of the rest why it can't be run."""
    programs = RpcPrograms()
    peers = [peer for peer in PEERS if peer.key in needed]
    if bench is None:
        programs.not_run.update({peer.name: NO_CHECKOUT for peer in peers})
        return programs
    packages = Environment(sys.executable)
    if any(peer.packages for peer in peers):
        place = bench.parent / ".make" / "bench-rpc" / "peers"
        packages = environment_of(place, bench / "python" / REQUIREMENTS, say, build=build)
    javascript = javascript_problem(bench / "javascript", say, build=build) if any_javascript(peers) else None
    rust, problem = rust_program(bench / "rpc", say, build=build) if crowds or any_rust(peers) else ("", None)
    for peer in peers:
        why = first_missing(peer, packages) or {"rust": problem, "javascript": javascript}.get(peer.language)
        if why is None:
            programs.roles[peer.key] = roles_of(peer, bench, packages, rust if problem is None else "")
        else:
            programs.not_run[peer.name] = why
    programs.versions.update(packages.versions, **(crates(bench / "rpc" / "Cargo.lock") if any_rust(peers) else {}))
    return programs


def roles_of(peer: Peer, bench: Path, packages: Environment, rust: str) -> Roles:
    """The command of each role."""
    command = (rust, peer.program) if peer.language == "rust" else python_command(peer, bench, packages)
    form = ("--form", peer.form)
    hub = (*command, "hub", *form) if peer.has_hub else None
    if peer.hub_of:
        hub = (packages.python, str(bench / "python" / peer.hub_of), "hub")
    if peer.caller:
        node = shutil.which("node") or "node"
        caller = (node, str(bench / "javascript" / "caller.mjs"), peer.caller)
        if peer.relay:
            hub = (node, str(bench / "javascript" / "relays.mjs"), peer.relay)
        return Roles((*command, "service", *form), caller, hub)
    crowd = (rust, CROWDS[peer.name], "crowd") if rust and peer.name in CROWDS else None
    return Roles((*command, "service", *form), (*command, "caller", *form), hub, crowd)


def python_command(peer: Peer, bench: Path, packages: Environment) -> tuple[str, ...]:
    """A program of bench/python with the Python that has its packages."""
    python = sys.executable if peer.place == "own" else packages.python
    return python, str(bench / "python" / peer.program)


def any_rust(peers: Sequence[Peer]) -> bool:
    """True if a peer needs the Rust program."""
    return any(peer.language == "rust" for peer in peers)


def any_javascript(peers: Sequence[Peer]) -> bool:
    """True if a peer needs the packages of JavaScript."""
    return any(peer.language == "javascript" for peer in peers)


def javascript_problem(folder: Path, say: Say, *, build: bool) -> str | None:
    """Installs the packages of JavaScript and builds our client; why that can't be done."""
    npm = shutil.which("npm")
    if npm is None:
        return "Node.js and npm are not installed"
    if not build:
        return None if (folder / "node_modules").is_dir() else f"{folder} has no node_modules (--no-build)"
    say("installing the peers of JavaScript, and building the client")
    client = folder.parent.parent / "js"
    if not (client / "node_modules").exists():
        problem = problem_of([npm, "ci", "--loglevel=error"], client)
        if problem:
            return problem
    return problem_of([npm, "run", "--silent", "build"], client) or problem_of(
        [npm, "install", "--no-package-lock", "--loglevel=error"], folder
    )


def first_missing(peer: Peer, packages: Environment) -> str | None:
    """Why a contender can't be run, if one of its packages is not there."""
    reasons = packages.missing
    return next((f"{name}: {reasons[name]}" for name in peer.packages if name in reasons), None)


def rust_program(folder: Path, say: Say, *, build: bool) -> tuple[str, str | None]:
    """The program of the Rust peers, and why it is not there; cargo itself knows whether there is
    anything to do.
    """
    target = Path(os.environ.get("CARGO_TARGET_DIR", folder / "target"))
    binary = target / "release" / "rpc-bench"
    if shutil.which("cargo") is None:
        return str(binary), None if binary.is_file() else "cargo is not installed"
    if build:
        say("building the Rust peers (some minutes the first time)")
        problem = problem_of(["cargo", "build", "--release", "--target-dir", str(target)], folder)
        if problem:
            return str(binary), problem
    return str(binary), None if binary.is_file() else f"{binary} has not been built"


def crates(lock: Path) -> dict[str, str]:
    """Versions of the Rust peers."""
    packages = re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', text_of(lock))
    return {f"{name} (Rust)": version for name, version in packages if name in CRATES}
