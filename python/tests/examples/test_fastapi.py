"""The program of docs/guides/fastapi.md under uvicorn, called over HTTP."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from page_programs import write_program

MISSING = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: pip install {' '.join(MISSING)}")


class Server:
    """The program of the page in a process of its own, at a port that the system chose."""

    def __init__(self, folder: Path) -> None:
        write_program("fastapi.md", "app.py", folder)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            listener.set_inheritable(True)
            command = ["-m", "uvicorn", "app:app", "--fd", str(listener.fileno()), "--timeout-graceful-shutdown", "1"]
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=folder,
                env={**os.environ, "DATA": str(folder / "data")},
                pass_fds=[listener.fileno()],
                stderr=subprocess.PIPE,
                text=True,
            )

    def request(self, method: str, path: str, value: Any = None, **headers: str) -> tuple[HTTPConnection, HTTPResponse]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        body = None if value is None else json.dumps(value)
        connection.request(method, path, body, {"content-type": "application/json", **headers})
        return connection, connection.getresponse()

    def call(self, method: str, path: str, value: Any = None) -> Any:
        connection, response = self.request(method, path, value)
        text = response.read()
        connection.close()
        assert response.status < 300, text
        return json.loads(text)

    def stop(self) -> str:
        """Stop it as a supervisor does, and return what it has logged."""
        self.process.send_signal(signal.SIGTERM)
        _, logged = self.process.communicate(timeout=30)
        return logged


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    yield started
    started.process.kill()
    started.process.wait()


def lines(response: HTTPResponse, count: int) -> list[str]:
    return [response.readline().decode().rstrip() for _ in range(count)]


def test_a_request_that_goes_away_cancels_its_task(server: Server) -> None:
    assert server.call("POST", "/render/100") == 100
    gone = [HTTPConnection("127.0.0.1", server.port, timeout=20) for _ in range(2)]
    for connection in gone:
        connection.request("POST", f"/render/{10**9}")  # hours, on each of the two workers
    while server.call("GET", "/statistics")["running"] < 2:
        pass
    for connection in gone:
        connection.close()
    assert server.call("POST", "/render/3") == 3  # a worker is free again
    while server.call("GET", "/statistics")["running"]:
        pass


def test_a_reader_that_reconnects_misses_no_order(server: Server) -> None:
    connection, response = server.request("GET", "/orders")
    for number in (1, 2):
        assert server.call("POST", "/orders", {"number": number}) == number
    assert lines(response, 3) == ["id: 1", 'data: {"number": 1}', ""]
    connection.close()
    server.call("POST", "/orders", {"number": 3})
    connection, response = server.request("GET", "/orders", **{"last-event-id": "1"})
    assert lines(response, 6) == ["id: 2", 'data: {"number": 2}', "", "id: 3", 'data: {"number": 3}', ""]
    connection.close()


def test_a_subject_becomes_server_sent_events_and_a_stop_ends_them(server: Server) -> None:
    _, response = server.request("GET", "/dashboard")
    assert lines(response, 2) == [": subscribed", ""]
    server.call("POST", "/orders", {"number": 1})
    assert lines(response, 3) == ["event: dashboard.order", 'data: {"number": 1}', ""]
    logged = server.stop()
    assert "Application shutdown complete" in logged
    assert "Application shutdown failed" not in logged
