"""The servers of tests and benchmarks end with whoever started them."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVERS = Path(__file__).parents[2] / "tools" / "servers.py"
WAIT_S = 30


class Keeper:
    """Servers and their keeper; a PostgreSQL, if nothing else is said."""

    def __init__(self, server: str = "postgres") -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SERVERS), server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = self.answer()
        if "error" in said:
            self.process.wait(WAIT_S)
            pytest.skip(said["error"])
        self.folder = Path(said["TIDEWIRE_TEST_SERVERS"])
        self.said = said
        self.url = said.get("TIDEWIRE_TEST_POSTGRES", "")

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
        """Descriptor that is readable once the present server has ended."""
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


def test_one_server_of_a_cluster_dies_and_comes_back() -> None:
    keeper = Keeper("nats-cluster")
    try:
        ports = [int(place.rsplit(":", 1)[1]) for place in keeper.said["TIDEWIRE_TEST_NATS_CLUSTER"].split(",")]
        assert [listens(port) for port in ports] == [True, True, True]
        assert keeper.order("kill n2") == {"done": "kill n2"}
        assert [listens(port) for port in ports] == [True, False, True]
        assert keeper.order("start n2") == {"done": "start n2"}
        assert listens(ports[1])
        assert "no order of a server that runs" in keeper.order("kill n9")["error"]
    finally:
        assert keeper.process.stdin is not None
        keeper.process.stdin.close()
        assert keeper.process.wait(WAIT_S) == 0
    assert not keeper.folder.exists()
    assert [listens(port) for port in ports] == [False, False, False]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
