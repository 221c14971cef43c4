"""The program of docs/guides/fastapi.md under uvicorn, called over HTTP."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
from page_programs import write_program

MISSING = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: pip install {' '.join(MISSING)}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    write_program("fastapi.md", "app.py", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, fd = listener.getsockname()[1], listener.fileno()
        command = [sys.executable, "-m", "uvicorn", "app:app", "--fd", str(fd), "--timeout-graceful-shutdown", "1"]
        process = subprocess.Popen(command, cwd=tmp_path, pass_fds=[fd], stderr=subprocess.PIPE, text=True)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        yield client, process
    process.kill()
    process.communicate()


@pytest.fixture
def client(server: tuple[httpx.Client, subprocess.Popen[str]]) -> httpx.Client:
    return server[0]


def test_a_request_that_goes_away_cancels_its_task(client: httpx.Client) -> None:
    assert client.post("/render/100").json() == 100
    for _ in range(2):  # one for each worker
        with pytest.raises(httpx.ReadTimeout):
            client.post(f"/render/{10**9}", timeout=0.2)
    assert client.post("/render/3").json() == 3
    while client.get("/statistics").json()["running"]:
        pass


def test_a_reader_that_reconnects_misses_no_order(client: httpx.Client) -> None:
    first, second, third = ([f"id: {number}", f'data: {{"number": {number}}}', ""] for number in (1, 2, 3))
    with client.stream("GET", "/orders") as response:
        for number in (1, 2):
            assert client.post("/orders", json={"number": number}).json() == number
        assert list(islice(response.iter_lines(), 3)) == first
    client.post("/orders", json={"number": 3})
    with client.stream("GET", "/orders", headers={"last-event-id": "1"}) as response:
        assert list(islice(response.iter_lines(), 6)) == second + third


def test_a_subject_becomes_events_and_a_stop_ends_them(server: tuple[httpx.Client, subprocess.Popen[str]]) -> None:
    client, process = server
    with client.stream("GET", "/dashboard") as response:
        lines = response.iter_lines()
        assert list(islice(lines, 2)) == [": subscribed", ""]
        client.post("/orders", json={"number": 1})
        assert list(islice(lines, 3)) == ["event: dashboard.order", 'data: {"number": 1}', ""]
        process.terminate()
        _, logged = process.communicate(timeout=30)
    assert "Application shutdown complete" in logged
