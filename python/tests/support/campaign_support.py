"""Stores, starters and watchers for the tests of campaigns."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from tidewire._binding import CampaignStore
from tidewire._campaigns.report import Status, WorkerStatus

sqlite_alone = pytest.mark.parametrize("store", ["sqlite"], indirect=True)
"""For stories whose part in a store is a case of the conformance suite, which each store passes."""
SUPPORT = Path(__file__).parent
PATIENCE_S = 30.0


def until(campaign: tw.Campaign, condition: Callable[[Status], object]) -> Status:
    """Wait until a campaign fits a condition: the store says when it has changed."""
    store = CampaignStore(campaign.store)
    end = time.monotonic() + PATIENCE_S
    while not condition(status := campaign.status()):
        assert time.monotonic() < end, status
        store.wait(200_000)
    return status


def plan_of(store: str, name: str = "pi") -> tw.Campaign:
    """Return the campaign of a starter, as soon as it is there."""
    connection = CampaignStore(store)
    while not connection.campaigns():
        connection.wait(200_000)
    return tw.open_campaign(store, name)


def working(status: Status) -> list[WorkerStatus]:
    """Return the workers that are at work."""
    return [worker for worker in status.workers if worker.state == "working"]


@contextlib.contextmanager
def running(campaign: tw.Campaign, workers: int = 2, **options: Any) -> Iterator[Callable[[], tw.Report]]:
    """Run a campaign in a thread. The yielded function waits for its end, and returns its report or
    raises its error.
    """
    ends: list[tw.Report | BaseException] = []

    def run() -> None:
        try:
            ends.append(campaign.run(workers=workers, progress=False, **options))
        except BaseException as error:  # noqa: BLE001
            ends.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> tw.Report:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), campaign.status()
        if isinstance(ends[0], BaseException):
            raise ends[0]
        return ends[0]

    try:
        yield end
    finally:
        if thread.is_alive():
            with contextlib.suppress(tw.CampaignError):
                campaign.cancel("the test is over")
            thread.join(PATIENCE_S)


@contextlib.contextmanager
def gated(path: str) -> Iterator[Callable[[], None]]:
    """Have late runs of ``campaign_functions.slow_pi`` wait at a named pipe until what is yielded
    is called: no campaign is over before.
    """
    opened: list[int] = []

    def go_on() -> None:
        if not opened:
            opened.append(os.open(path, os.O_RDWR))

    os.environ["CAMPAIGN_GATE"] = path
    try:
        yield go_on
    finally:
        go_on()
        del os.environ["CAMPAIGN_GATE"]
        os.close(opened[0])


@contextlib.contextmanager
def program(code: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start a script in a group of processes of its own, which is killed at the end."""
    script = folder / "program.py"
    script.write_text(code)
    with _group([sys.executable, str(script)], folder, environment) as process:
        yield process


@contextlib.contextmanager
def server(
    store: str, processes: int, folder: Path, *options: str, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Start ``tidewire worker`` in a group of processes of its own, which is killed at the end."""
    command = [sys.executable, "-m", "tidewire", "worker", store, "--processes", str(processes), *options]
    with _group(command, folder, environment) as process:
        yield process


@contextlib.contextmanager
def _group(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    paths = os.pathsep.join([str(folder), str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
