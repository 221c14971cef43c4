"""Programs that pages print with a name behind the language, as a user runs them."""

from __future__ import annotations

import functools
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
from link_processes import Program, Programs, free_port

GUIDES = Path(__file__).resolve().parents[3] / "docs/guides"


def programs_of(page: str, name: str) -> list[str]:
    text = (GUIDES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```python {re.escape(name)}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def write_program(page: str, name: str, folder: Path) -> str:
    [program] = programs_of(page, name)
    (folder / name).write_text(program, encoding="utf-8")
    return str(folder / name)


Server = tuple[httpx.Client, subprocess.Popen[str]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    for library in ("fastapi", "uvicorn"):
        pytest.importorskip(library, reason=f"not installed: pip install {library}")
    write_program("fastapi.md", "app.py", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, fd = listener.getsockname()[1], listener.fileno()
        command = [sys.executable, "-m", "uvicorn", "app:app", "--fd", str(fd), "--timeout-graceful-shutdown", "1"]
        process = subprocess.Popen(command, cwd=tmp_path, pass_fds=[fd], stderr=subprocess.PIPE, text=True)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        yield client, process
    process.kill()
    process.communicate()


def test_a_request_that_goes_away_cancels_its_task(server: Server) -> None:
    client, _ = server
    assert client.post("/render/100").json() == 100
    for _ in range(2):  # one for each worker
        with pytest.raises(httpx.ReadTimeout):
            client.post(f"/render/{10**9}", timeout=0.2)
    assert client.post("/render/3").json() == 3
    while client.get("/statistics").json()["running"]:
        pass


def test_event_streams_go_on_where_they_ended_and_a_stop_ends_them(server: Server) -> None:
    client, process = server
    first, second = ([f"id: {number}", f'data: {{"number": {number}}}', ""] for number in (1, 2))
    with client.stream("GET", "/orders") as response:
        client.post("/orders", json={"number": 1})
        assert list(islice(response.iter_lines(), 3)) == first
    with client.stream("GET", "/dashboard") as response:
        lines = response.iter_lines()
        assert list(islice(lines, 2)) == [": subscribed", ""]
        assert client.post("/orders", json={"number": 2}).json() == 2
        assert list(islice(lines, 3)) == ["event: dashboard.order", *second[1:]]
        with client.stream("GET", "/orders", headers={"last-event-id": "1"}) as missed:
            assert list(islice(missed.iter_lines(), 3)) == second
        process.terminate()
        assert "Application shutdown complete" in process.communicate(timeout=30)[1]


def terminate(program: Program) -> int:
    program.signal(signal.SIGTERM)
    return program.ended()


def test_a_worker_waits_for_its_hub_and_joins_it_again_after_a_restart(started: Programs, tmp_path: Path) -> None:
    program, url = write_program("deployment.md", "worker.py", tmp_path), started.url("unix")
    late = started.run(program, env={"TIDEWIRE_URL": url, "HUB_WAIT": "0.1"})
    late.expect_log("tidewire.errors.LinkLost: url: there is no hub at")
    assert late.ended() == 1
    waiting, worker = (started.run(program, env={"TIDEWIRE_URL": url}) for _ in range(2))
    for one in (waiting, worker):
        one.expect_log(f"nobody is at {url} yet: waiting for it, for up to 60 s")
    assert terminate(waiting) == 0
    for joined in ("has joined the hub 'hub' at", "has joined the hub 'hub' again"):
        hub, _ = started.hub(url, "--name", "hub", "--log-level", "info")
        worker.expect_log(joined)
        hub.expect_log("serves svc.pricing.")
        call = started.run("-m", "tidewire", "call", "--url", url, "--wait", "20", "pricing.quote", "AB")
        assert (call.line(), call.ended(), terminate(hub)) == ("5.0", 0, 0)
        worker.expect_log("the link is lost")
    assert terminate(worker) == 0


def test_the_cells_of_a_notebook_run_in_a_kernel(tmp_path: Path) -> None:
    nbformat, nbclient, *_ = (
        pytest.importorskip(name) for name in ("nbformat", "nbclient", "ipykernel", "cloudpickle")
    )
    cells = [nbformat.v4.new_code_cell(cell) for cell in programs_of("notebooks.md", "cell")]
    notebook, resources = nbformat.v4.new_notebook(cells=cells), {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=30, kernel_name="python3", resources=resources).execute()
    assert "<table" in notebook.cells[-2].outputs[-1].data["text/html"]


@pytest.mark.parametrize(("name", "library"), [("clinic.py", "simpy"), ("wealth.py", "mesa")])
def test_a_model_of_a_library_runs_as_a_campaign(name: str, library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    subprocess.run(
        [sys.executable, write_program("simulations.md", name, tmp_path)], cwd=tmp_path, check=True, timeout=55
    )


def test_a_model_of_scikit_learn_predicts_in_a_pool(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="not installed: pip install scikit-learn")
    program = write_program("inference.md", "predict.py", tmp_path)
    ran = subprocess.run([sys.executable, program], cwd=tmp_path, check=True, timeout=100, stdout=subprocess.PIPE)
    assert ran.stdout.endswith(b"of 150 right, 150 requests\n")


SETTINGS = """
SECRET_KEY, DEBUG, ALLOWED_HOSTS, USE_TZ = "of a test", True, ["*"], True
INSTALLED_APPS, ROOT_URLCONF, DEFAULT_AUTO_FIELD = ["shop"], "shop.views", "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db", "OPTIONS": {"timeout": 30}}}
"""


def test_django_views_publish_orders_that_a_handler_invoices(started: Programs, tmp_path: Path) -> None:
    pytest.importorskip("django", reason="not installed: pip install django")
    (tmp_path / "shop/management/commands").mkdir(parents=True)
    (tmp_path / "settings.py").write_text(SETTINGS, encoding="utf-8")
    for name in ("node", "models", "views", "management/commands/handle_orders"):
        write_program("django.md", f"shop/{name}.py", tmp_path)
    _, url = started.hub("tide://127.0.0.1:0", "--data", str(tmp_path / "data"))
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {"TIDEWIRE_URL": url, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": path}
    django = [sys.executable, "-m", "django"]
    subprocess.run([*django, "migrate", "--run-syncdb"], cwd=tmp_path, env={**os.environ, **environment}, check=True)
    port = free_port()
    run = functools.partial(subprocess.Popen, cwd=tmp_path, env={**os.environ, **environment})
    server = run([*django, "runserver", "--noreload", f"127.0.0.1:{port}"])
    handler = run([*django, "handle_orders"])
    try:
        transport = httpx.HTTPTransport(retries=10)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, transport=transport) as client:
            orders = [client.post("/orders", json={"total": total}).json()["order"] for total in (1.5, 2.5)]
            while client.get("/invoices").json()["orders"] != orders:
                assert handler.poll() is None
            assert client.get("/quotes/AB").json() == {"price": 5.0}
        handler.terminate()
        assert handler.wait(30) == 0
    finally:
        for process in (server, handler):
            process.kill()
            process.wait()
