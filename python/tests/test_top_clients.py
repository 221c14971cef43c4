"""The service ``$sys`` at the socket of a node: clients that are a nuisance."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import tidewire as tw
from tidewire.top.service import WATCHERS_MAX
from top_support import PATIENCE_S, ask


@pytest.mark.parametrize("garbage", [b"\x00\xff\xfe\n", b"[" * 1_000 + b"\n", b'{"ask": "who"}\n'])
def test_garbage_is_dropped(place: Path, garbage: bytes) -> None:
    with tw.Node(inspect=True):
        (path,) = place.iterdir()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(str(path))
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65_536):
                pass
        assert ask(path, "about")["pid"] == os.getpid()


def test_a_method_that_is_not_known_and_arguments_are_refused(place: Path) -> None:
    with tw.Node(inspect=True):
        (path,) = place.iterdir()
        with pytest.raises(tw.NoResponders, match="nobody answers 'fly' here"):
            ask(path, "fly")
        with pytest.raises(tw.InvalidArgument, match=r"\$sys.about: it takes no arguments"):
            ask(path, "about", 1)


def test_more_clients_than_there_is_room_for_are_refused(place: Path) -> None:
    with tw.Node(inspect=True), ExitStack() as joined:
        (path,) = place.iterdir()
        url = f"tide+unix://{path}"
        watchers = [joined.enter_context(tw.Node(url, inspect=False)) for _ in range(WATCHERS_MAX)]
        with pytest.raises(tw.LimitExceeded):
            tw.Node(url, inspect=False).start()
        subject = f"svc.$sys.{path.stem}.about"
        assert {watcher.request(subject, (), PATIENCE_S).wait()["pid"] for watcher in watchers} == {os.getpid()}
