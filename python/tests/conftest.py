"""Fixtures that the tests share."""

from __future__ import annotations

import asyncio
import compileall
import inspect
import itertools
import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import tidewire as tw
from file_durations import (  # noqa: F401  (hooks of pytest)
    pytest_configure,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)
from home_support import home as home_of
from home_support import nats_server, nodes
from in_loop import InLoop
from link_certificates import certificates as make_certificates
from link_processes import Programs, programs
from server_keeper import Keeper


def pytest_sessionstart() -> None:
    """Compile what hundreds of processes import, and have them hear Ctrl-C.

    Python may have been told to write no bytecode by itself; and a shell has what it starts in the
    background ignore Ctrl-C, and all that is started from there.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place in (Path(tw.__file__).parent, Path(__file__).parent):
        compileall.compile_dir(place, quiet=2)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def main() -> None:
        async with AsyncExitStack() as stack:
            given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
            for name, value in given.items():
                if isinstance(value, InLoop):
                    given[name] = await stack.enter_async_context(value.context)
            await pyfuncitem.obj(**given)

    asyncio.run(main())
    return True


@pytest.fixture
def node(tidewire_node: tw.Node) -> tw.Node:
    """A node: on the event loop of a coroutine test, else used from a plain thread."""
    return tidewire_node


@pytest.fixture
def nats_url() -> Iterator[str]:
    """A NATS server of one test."""
    with nats_server() as url:
        yield url


@pytest.fixture(params=["folder", "hub", "nats"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> InLoop:
    """A node with a home of its own, at a hub, and on NATS."""
    return InLoop(home_of(request.param, tmp_path))


@pytest.fixture(params=["folder", "hub", "nats"])
def homes(request: pytest.FixtureRequest, tmp_path: Path) -> InLoop:
    """Two nodes with the same home."""
    return InLoop(nodes(request.param, tmp_path))


@pytest.fixture
def virtual_time(request: pytest.FixtureRequest) -> None:
    """Virtual time, unless the home is a NATS server, which has its own."""
    if "nats" not in request.node.callspec.params.values():
        request.getfixturevalue("tidewire_clock")


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Failures that a test provokes are looked at by the test, not on the screen."""
    logging.getLogger("tidewire").setLevel(logging.CRITICAL)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    """The processes of a story about links. They end with it. They, and nodes of the story, soon
    try again to join a hub.
    """
    monkeypatch.setenv("TIDEWIRE_LINKS__LINK_BACKOFF_MAX_MS", "50")
    with programs() as found:
        yield found


@pytest.fixture(scope="module")
def processes() -> Iterator[Programs]:
    """The processes that all stories of a file share."""
    with programs() as found:
        yield found


@pytest.fixture(scope="module")
def workshop_url(processes: Programs) -> str:
    """A hub and a server of a workshop, for all stories of a file."""
    _, url, _ = processes.hub_and_server()
    return url


@pytest.fixture
def caller(workshop_url: str) -> InLoop:
    """A node that has joined the hub of a workshop."""
    return InLoop(tw.Node(workshop_url, name="caller"))


@pytest.fixture
def workshop(workshop_url: str) -> InLoop:
    return InLoop(_client(workshop_url))


@asynccontextmanager
async def _client(url: str) -> AsyncIterator[Any]:
    async with tw.Node(url, name="caller") as node:
        yield node.client("workshop")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the campaign ``pi`` of 1,000 runs with seed 7."""
    from campaign_functions import pi

    store = f"sqlite:///{tmp_path_factory.mktemp('undisturbed')}/farm.db"
    return tw.campaign(pi, runs=1_000, seed=7, store=store).run(workers=1, progress=False).digest


@pytest.fixture
def gate(tmp_path: Path) -> str:
    """A named pipe that keeps ``wait_for`` waiting until ``opened`` it is."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return str(path)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the sockets of one test lie. Its path is short, as that of a Unix socket must be."""
    base = Path(tempfile.mkdtemp(prefix="tw"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    monkeypatch.setenv("TMPDIR", str(base))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("TIDEWIRE_INSPECT", raising=False)
    yield base / f"tidewire-{os.geteuid()}"
    shutil.rmtree(base)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl on this machine to make certificates with")
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL for all stories of a session: the one that the environment names, or one of its
    own.
    """
    if "TIDEWIRE_TEST_POSTGRES" in os.environ:
        yield os.environ["TIDEWIRE_TEST_POSTGRES"]
        return
    with Keeper() as keeper:
        yield keeper.url


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of campaigns for one test: a file, and a database of a server."""
    return _store_of(request, tmp_path)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def module_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of campaigns for all tests of a module."""
    return _store_of(request, tmp_path_factory.mktemp("store"))


def _store_of(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder}/farm.db"
    url: str = request.getfixturevalue("postgres_url")
    name = f"farm_{os.getpid()}_{next(_databases)}"
    create = ["psql", url, "--quiet", "--command", f"CREATE DATABASE {name}"]
    subprocess.run(create, check=True, capture_output=True, timeout=60)
    return urlsplit(url)._replace(path=f"/{name}").geturl()


_databases = itertools.count()
