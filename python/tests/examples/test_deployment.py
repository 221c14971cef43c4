"""The worker of docs/guides/deployment.md, started before its hub, as a supervisor does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from page_programs import write_program

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"tide+unix://{tmp_path}/hub.sock"


@pytest.fixture
def start(tmp_path: Path, url: str) -> Iterator[Start]:
    """Start a process whose log is a pipe."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, **environment: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "TIDEWIRE_URL": url, **environment}
        process = subprocess.Popen(
            [sys.executable, *command], env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    write_program("deployment.md", "worker.py", tmp_path)
    yield start
    for process in started:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"the process ended with {process.wait()}, and did not log {text!r}")


def terminate(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    return process.returncode


def quote(url: str) -> str:
    command = [sys.executable, "-m", "tidewire", "call", "--url", url, "--wait", "20", "pricing.quote", "AB"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def test_a_worker_waits_for_its_hub_and_joins_it_again_after_a_restart(start: Start, url: str) -> None:
    worker = start("worker.py")
    read_until(worker, f"nobody is at {url} yet: waiting for it, for up to 60 s")
    for joined in ("has joined the hub 'hub' at", "has joined the hub 'hub' again"):
        hub = start("-m", "tidewire", "up", "--listen", url, "--name", "hub")
        read_until(worker, joined)
        read_until(hub, "serves svc.pricing.")
        assert quote(url) == "5.0\n"
        assert terminate(hub) == 0
        read_until(worker, "the link is lost")
    assert terminate(worker) == 0  # the hub is away


def test_a_worker_without_a_hub_ends_by_signal_or_at_its_timeout(start: Start) -> None:
    waiting = start("worker.py")
    read_until(waiting, "waiting for it")
    assert terminate(waiting) == 0
    late = start("worker.py", HUB_WAIT="0.1")
    read_until(late, "tidewire.errors.LinkLost: url: there is no hub at")
    assert late.wait(timeout=30) == 1
