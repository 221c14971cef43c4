"""``tidewire bench http``: a JSON echo over HTTP through the gateway of a hub, beside a bare axum
and FastAPI on uvicorn.

64 connections that are kept, one request at a time on each, 256 bytes of JSON. Contenders take
turns, and every run starts all its processes anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import tidewire

from .engine import default_out
from .environments import environment_of
from .machine import machine
from .programs import NO_CHECKOUT, bench_folder, environment, problem_of

CONNECTIONS = 64
PATIENCE_S = 60.0
NAMES = {
    "gateway-rust": "tidewire gateway, service in Rust",
    "axum-hop": "axum, service behind a socket hop",
    "gateway-python": "tidewire gateway, service in Python",
    "fastapi": "FastAPI + uvicorn calling the service in Python",
    "axum": "axum alone, no service",
}


class Roles:
    """The programs, and how each contender is put together of them."""

    def __init__(self, bench: Path) -> None:
        self.bench = bench
        self.rust = str(Path(os.environ.get("CARGO_TARGET_DIR", bench / "http" / "target")) / "release" / "http-bench")
        self.python = sys.executable
        self.fastapi = sys.executable

    def prepare(self, build: bool) -> str | None:
        """Build and install; why that did not work, if it did not."""
        target = str(Path(self.rust).parents[1])
        if build and shutil.which("cargo"):
            problem = problem_of(["cargo", "build", "--release", "--target-dir", target], self.bench / "http")
            if problem:
                return problem
        if not Path(self.rust).is_file():
            return f"{self.rust} has not been built"
        folder = self.bench.parent / ".make" / "bench-http"
        peers = environment_of(folder, self.bench / "python" / "http_requirements.txt", say, build=build)
        self.fastapi = peers.python
        return next(iter(peers.missing.values()), None)

    @contextlib.contextmanager
    def at_work(self, name: str) -> Iterator[tuple[str, str]]:
        """Start what a contender needs; where the load goes."""
        with contextlib.ExitStack() as stack:

            def start(*command: str) -> str:
                return stack.enter_context(running(command))

            if name == "axum":
                yield start(self.rust, "axum"), "/echo"
            elif name == "axum-hop":
                yield start(self.rust, "axum", start(self.rust, "hop")), "/echo"
            else:
                hub = (
                    self.python,
                    "-m",
                    "tidewire",
                    "up",
                    "--json",
                    "--log-level",
                    "warning",
                    "--listen",
                    "tide://127.0.0.1:0",
                    "--http",
                    "127.0.0.1:0",
                )
                link, web = json.loads(start(*hub))["urls"]
                if name == "gateway-rust":
                    start(self.rust, "service", link)
                else:
                    start(self.python, str(self.bench / "python" / "http_service.py"), link)
                if name != "fastapi":
                    yield urlsplit(web).netloc, "/services/bench/echo"
                    return
                with socket.create_server(("127.0.0.1", 0)) as free:
                    port = str(free.getsockname()[1])
                program = str(self.bench / "python" / "http_fastapi.py")
                stack.enter_context(process((self.fastapi, program, link, port)))
                yield answering("127.0.0.1", int(port)), "/echo"

    def figures(self, name: str, seconds: float) -> dict[str, float]:
        """One run of a contender."""
        with self.at_work(name) as (place, path):
            load = [self.rust, "load", place, path, str(CONNECTIONS), str(seconds)]
            done = subprocess.run(load, capture_output=True, text=True, timeout=PATIENCE_S + seconds, check=False)
            if done.returncode:
                raise RuntimeError(f"{name}: {done.stderr.strip()}")
            found: dict[str, float] = json.loads(done.stdout)["figures"]
            return found


@contextlib.contextmanager
def process(command: Sequence[str]) -> Iterator[IO[str]]:
    """A program, until the end of the block."""
    place = str(Path(tidewire.__file__).parents[1])
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**environment(), "PYTHONPATH": place})
    assert started.stdout
    try:
        yield started.stdout
    finally:
        started.terminate()
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[str]:
    """A program that has said its first line."""
    with process(command) as out:
        line = out.readline().strip()
        if not line:
            raise RuntimeError(f"{' '.join(command[:3])} has not begun")
        yield line


def answering(host: str, port: int) -> str:
    """Wait until somebody listens."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return f"{host}:{port}"


def say(text: str) -> None:
    """Tell what takes time."""
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; 0, or 2 if it can't be run."""
    parser = argparse.ArgumentParser(prog="tidewire bench http", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--repeat", type=int, default=5, help="runs of each contender (default: 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run (default: 3)")
    parser.add_argument("--peers", default=",".join(NAMES), help=f"which contenders (default: {','.join(NAMES)})")
    parser.add_argument("--out", type=Path, help="folder of bench-http.json (default: out)")
    parser.add_argument("--no-build", action="store_true", help="take what has been built before")
    options = parser.parse_args(argv)
    chosen = [name for name in options.peers.split(",") if name]
    unknown = [name for name in chosen if name not in NAMES]
    if unknown or options.repeat < 1 or options.seconds <= 0:
        say(f"tidewire bench http: {unknown or 'numbers'} not allowed: contenders are {', '.join(NAMES)}")
        return 2
    bench, before = bench_folder(), machine()
    if bench is None:
        say(f"tidewire bench http: {NO_CHECKOUT}")
        return 2
    roles = Roles(bench)
    problem = roles.prepare(not options.no_build)
    if problem:
        say(f"tidewire bench http: {problem}")
        return 2
    found: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for number in range(options.repeat):
        for name in chosen:
            say(f"run {number + 1} of {options.repeat}: {NAMES[name]}")
            found[name].append(roles.figures(name, options.seconds))
    show(found)
    out = options.out or default_out(bench)
    out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"machine": before, "connections": CONNECTIONS, "seconds": options.seconds, "runs": found}
    (out / "bench-http.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0


def show(found: dict[str, list[dict[str, float]]]) -> None:
    """Print median, least and most."""
    print(f"JSON echo over HTTP, {CONNECTIONS} connections; requests/s and ms: median (min to max)")
    for name, runs in found.items():
        cells = []
        for key, form in (("rate", "{:,.0f}"), ("p50_ms", "{:.2f}"), ("p99_ms", "{:.2f}")):
            values = [run[key] for run in runs]
            low, middle, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
            cells.append(f"{key} {middle} ({low} to {high})")
        print(f"{NAMES[name]:<50} {'   '.join(cells)}")


if __name__ == "__main__":
    sys.exit(main())
