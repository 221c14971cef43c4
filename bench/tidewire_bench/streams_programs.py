"""The programs and servers of ``tidewire bench streams``: installed and started when they are
needed first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tidewire

from .environments import Environment, environment_of
from .programs import environment, problem_of
from .streams_cases import Case, Contender

TIMEOUT_S = 600.0


class Unavailable(Exception):
    """A contender that can't be run here, and why."""


class StreamPrograms:
    """Programs of the contenders.

    Args:
        bench: The folder ``bench`` of a checkout.
        build: True if peers may be installed.
    """

    def __init__(self, bench: Path, *, build: bool) -> None:
        self._bench, self._build = bench, build
        self._is_built = False
        self._peers: Environment | None = None
        self._servers: dict[str, tuple[subprocess.Popen[str], str]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="tidewire-streams-")

    def figures(self, case: Case, contender: Contender, count: int) -> list[dict[str, float]]:
        """One run of a contender.

        Raises:
            Unavailable: if it can't be run, or fails.
        """
        if contender.program == "failover":
            return [self._failover(contender, count)]
        place = self._place(contender.place)
        run = [place, case.workload, str(count)]
        if contender.program == "rust":
            command = [self._rust(), *run]
        else:
            script = self._bench / "python" / "streams_roles.py"
            command = [self._python(contender), str(script), contender.role, *run]
        try:
            return [json.loads(self._said(command))]
        finally:
            if contender.place == "folder":
                shutil.rmtree(place, ignore_errors=True)
                Path(place).unlink(missing_ok=True)
            if contender.place == "hub":
                self._stop("hub")

    def versions(self) -> dict[str, str]:
        """Versions of the contenders."""
        return dict(self._peers.versions) if self._peers else {}

    def close(self) -> None:
        """End the servers, and remove what was written."""
        for name in list(self._servers):
            self._stop(name)
        self._folder.cleanup()

    def _failover(self, contender: Contender, count: int) -> dict[str, float]:
        home = "nats" if contender.place == "nats" else "hub"
        script = Path(__file__).with_name("failover.py")
        said = self._said([sys.executable, str(script), "--rounds", str(count), "--home", home])
        found: dict[str, float] = json.loads(said.partition(" ")[2])
        return found

    def _said(self, command: list[str]) -> str:
        place = str(Path(tidewire.__file__).parents[1])
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                env={**environment(), "PYTHONPATH": place},
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise Unavailable(str(problem)) from None
        if done.returncode:
            raise Unavailable((done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1])
        return done.stdout.strip()

    def _python(self, contender: Contender) -> str:
        if contender.role in ("tidewire", "sqlite", "bare"):
            return sys.executable
        if self._peers is None:
            folder = self._bench.parent / ".make" / "bench-streams"
            requirements = self._bench / "python" / "streams_requirements.txt"
            self._peers = environment_of(folder, requirements, say, build=self._build)
        missing = self._peers.missing.get(contender.role)
        if missing:
            raise Unavailable(missing)
        return self._peers.python

    def _rust(self) -> str:
        root = self._bench.parent
        target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
        if self._build and not self._is_built:
            say("building the example `durable` of tidewire-node (some minutes the first time)")
            build = ["cargo", "build", "--release", "--package", "tidewire-node", "--example", "durable"]
            problem = problem_of([*build, "--target-dir", str(target)], root)
            if problem is not None:
                raise Unavailable(problem)
            self._is_built = True
        program = target / "release" / "examples" / "durable"
        if not program.is_file():
            raise Unavailable(f"{program} has not been built")
        return str(program)

    def _place(self, kind: str) -> str:
        if kind == "folder":
            return tempfile.mktemp(dir=self._folder.name)
        if kind not in self._servers:
            self._servers[kind] = self._started(kind)
        return self._servers[kind][1]

    def _started(self, kind: str) -> tuple[subprocess.Popen[str], str]:
        if kind == "hub":
            data = tempfile.mkdtemp(dir=self._folder.name)
            listen = ["--listen", "tide://127.0.0.1:0"]
            command = [
                sys.executable,
                "-m",
                "tidewire",
                "up",
                "--json",
                "--log-level",
                "warning",
                *listen,
                "--data",
                data,
            ]
        else:
            command = [sys.executable, str(self._bench.parent / "tools" / "servers.py"), kind]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            raise Unavailable(f"the server {kind} has not begun; try {' '.join(command[1:])}")
        found = json.loads(line)
        return server, found["urls"][0] if kind == "hub" else next(iter(found.values()))

    def _stop(self, name: str) -> None:
        server, _ = self._servers.pop(name)
        if name == "hub":
            server.terminate()
        # Servers of tools/servers.py end with their standard input.
        server.communicate(timeout=60)


def say(text: str) -> None:
    """Tell what takes time."""
    print(text, file=sys.stderr, flush=True)
