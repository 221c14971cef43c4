"""The servers of tests and benchmarks end with whoever started them."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
from collections.abc import Iterator

import pytest
from server_keeper import WAIT_S, Keeper


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
    assert keeper.end() == 0
    assert ended(second)
    assert not keeper.folder.exists()


def test_a_server_whose_keeper_is_killed_ends(keeper: Keeper) -> None:
    server = keeper.server()
    keeper.process.send_signal(signal.SIGKILL)
    assert ended(server), "it still runs"


def test_one_server_of_a_cluster_dies_and_comes_back() -> None:
    with Keeper("nats-cluster") as keeper:
        ports = [int(place.rsplit(":", 1)[1]) for place in keeper.said["TIDEWIRE_TEST_NATS_CLUSTER"].split(",")]
        assert [listens(port) for port in ports] == [True, True, True]
        assert keeper.order("kill n2") == {"done": "kill n2"}
        assert [listens(port) for port in ports] == [True, False, True]
        assert keeper.order("start n2") == {"done": "start n2"}
        assert listens(ports[1])
        assert "no order of a server that runs" in keeper.order("kill n9")["error"]
    assert not keeper.folder.exists()
    assert [listens(port) for port in ports] == [False, False, False]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
