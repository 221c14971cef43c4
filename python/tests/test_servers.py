"""The servers of tests and benchmarks end with whoever started them."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVERS = Path(__file__).parents[2] / "tools" / "servers.py"
WAIT_S = 30


class Keeper:
    """A PostgreSQL and its keeper."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SERVERS), "postgres"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = self.answer()
        if "error" in said:
            self.process.wait(WAIT_S)
            pytest.skip(said["error"])
        self.folder = Path(said["TIDEWIRE_TEST_SERVERS"])
        self.url = said["TIDEWIRE_TEST_POSTGRES"]

    def answer(self) -> dict[str, str]:
        assert self.process.stdout is not None
        found: dict[str, str] = json.loads(self.process.stdout.readline())
        return found

    def order(self, order: str) -> dict[str, str]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return self.answer()

    def server(self) -> int:
        """What becomes readable when the server that runs now has ended."""
        return os.pidfd_open(int((self.folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0]))


def ended(server: int) -> bool:
    try:
        return bool(select.select([server], [], [], WAIT_S)[0])
    finally:
        os.close(server)


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    keeper = Keeper()
    yield keeper
    keeper.process.kill()
    keeper.process.wait(WAIT_S)
    shutil.rmtree(keeper.folder, ignore_errors=True)


def test_a_server_restarts_when_told_and_ends_with_its_starter(keeper: Keeper) -> None:
    first = keeper.server()
    assert keeper.order("restart") == {"done": "restart"}
    assert ended(first), "it was the same server"
    assert "start, restart" in keeper.order("dance")["error"]
    second = keeper.server()
    assert keeper.process.stdin is not None
    keeper.process.stdin.close()
    assert keeper.process.wait(WAIT_S) == 0
    assert ended(second)
    assert not keeper.folder.exists()


def test_a_server_whose_keeper_is_killed_ends(keeper: Keeper) -> None:
    server = keeper.server()
    keeper.process.send_signal(signal.SIGKILL)
    assert ended(server), "it still runs"
