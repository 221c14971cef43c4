"""The socket behind ``tidewire top``: clients that are a nuisance."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path

import pytest
import tidewire as tw
from tidewire.top import serving
from tidewire.top.finding import ask
from tidewire.top.serving import CLIENTS_MAX
from top_support import PATIENCE_S, TOO_LONG

# Clients that are a nuisance


@pytest.mark.parametrize(
    "garbage",
    [b"\x00\xff\xfe\n", b"[]\n", b"[" * 1_000 + b"\n", TOO_LONG, b'{"ask": ', b"\n"],
)
def test_garbage_is_dropped(place: Path, garbage: bytes) -> None:
    with tw.Node(inspect=True):
        (path,) = place.iterdir()
        with calling(path) as client:
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            assert received(client) == b""
        assert ask(path, "who", PATIENCE_S)["pid"] == os.getpid()


def test_a_question_that_is_not_known_is_named(place: Path) -> None:
    with tw.Node(inspect=True):
        (path,) = place.iterdir()
        with pytest.raises(tw.TidewireError, match="ask: 'fly' is not known: this version answers 'who' and 'top'"):
            ask(path, "fly", PATIENCE_S)


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node waits a shorter time for those who ask it."""
    monkeypatch.setattr(serving, "CLIENT_S", 0.5)


def test_slow_clients_are_dropped_and_others_get_their_turn(place: Path, short_patience: None) -> None:
    with tw.Node(inspect=True) as node:
        (path,) = place.iterdir()
        slow = [calling(path) for _ in range(CLIENTS_MAX + 2)]
        slow[-1].sendall(b'{"ask"')
        assert ask(path, "who", PATIENCE_S)["pid"] == os.getpid()
        assert node._inspector is not None
        assert len(node._inspector._clients) <= CLIENTS_MAX
        assert [received(client) for client in slow] == [b""] * len(slow)
        for client in slow:
            client.close()


def test_a_client_that_does_not_read_is_dropped(place: Path, short_patience: None) -> None:
    with tw.Node(inspect=True) as node:
        for n in range(500):
            node.agent(lambda n: n, id=f"agent-{n}", capabilities=["c" * 1_000])
        (path,) = place.iterdir()
        with calling(path) as client:
            client.sendall(b'{"ask": "top"}\n')
            select.select([client], [], [], PATIENCE_S)
            # Other questions are answered while this one stands, and the thread goes back to sleep when it is dropped.
            assert len(ask(path, "top", PATIENCE_S)["agents"]) == 500
            poll = select.poll()
            poll.register(client, select.POLLHUP)
            assert poll.poll(PATIENCE_S * 1_000), "it is dropped"
            assert not received(client).endswith(b"\n"), "it would have had to read"


def calling(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENCE_S)
    client.connect(str(path))
    return client


def received(client: socket.socket) -> bytes:
    parts = []
    try:
        while part := client.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
