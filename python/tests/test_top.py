"""A node can be looked at by its own user, and only if it was asked to."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import io
import json
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from rich.console import Console
from tidewire.top import serving
from tidewire.top.answer import ANSWER_BYTES_MAX, OTHERS_MAX, look
from tidewire.top.finding import ask
from tidewire.top.rates import with_rates
from tidewire.top.screen import picture, shared
from tidewire.top.serving import CLIENTS_MAX, QUESTION_BYTES_MAX

PACKAGE = Path(__file__).resolve().parents[1]
PATIENCE_S = 30.0
NOBODY = 65534
TOO_LONG = json.dumps({"ask": "who", "because": "x" * QUESTION_BYTES_MAX}).encode() + b"\n"

ORDERS = """
import sys, time
import tidewire as tw
with tw.Node(name="orders", inspect=True) as node, tw.Pool(abs, workers=1, name="absolutes") as pool:
    node.agent(lambda n: n, id="pricing", type="price", capabilities=["quote", "list"])
    asker, log = node.agent(lambda n: n, id="asker"), node.spawn(lambda n: n, name="log")
    for n in range(3):
        asker.sync.request(n, to="pricing")
    node.sync.ask(log, 1)
    assert list(pool.sync.map(range(5))) == [0, 1, 2, 3, 4]
    print("ready", flush=True)
    sys.stdin.readline()
"""


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


def top(*arguments: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidewire", "top", *arguments]
    environment = {**os.environ, "COLUMNS": str(columns)}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=PACKAGE, env=environment
    )


@contextmanager
def program(text: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A program that says when it is ready, and ends when its input does."""
    command = [sys.executable, "-c", text]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PACKAGE,
        env={**os.environ, **environment},
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n"
            yield started
        finally:
            assert started.stdin is not None
            started.stdin.close()
            started.wait(PATIENCE_S)


def inspectors() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.endswith("-inspect")]


def threads() -> list[str]:
    return [thread.name for thread in inspectors()]


# What is seen


def test_a_running_node_is_seen_with_its_agents_pools_and_actors(place: Path) -> None:
    with program(ORDERS) as orders:
        ran = top("--once", "--json", "--interval", "0.1")
        assert ran.returncode == 0, ran.stderr
        seen = json.loads(ran.stdout)
        assert (seen["node"], seen["pid"], seen["url"]) == ("orders", orders.pid, "mem://")
        assert seen["versions"]["tidewire"] == tw.__version__
        assert seen["uptime_s"] > 0
        agents = {row["id"]: row for row in seen["agents"]}
        assert set(agents) == {"pricing", "asker"}
        assert agents["pricing"]["handled"] == 3
        assert agents["pricing"]["capabilities"] == ["list", "quote"]
        assert (agents["pricing"]["type"], agents["pricing"]["status"]) == ("price", "idle")
        assert agents["pricing"]["handled_per_s"] == 0.0, "nothing happened between the two looks"
        assert [(row["name"], row["handled"], row["workers"]) for row in seen["pools"]] == [("absolutes", 5, 1)]
        assert [(row["name"], row["handled"]) for row in seen["actors"]] == [("log", 1)]
        assert {row["name"] for row in seen["dispatchers"]} == {"default", "asyncio"}
        assert (seen["timers"], seen["ask_timeouts"], seen["dead_letters"]) == (0, 0, {})


def test_a_table_fits_a_terminal_of_80_columns(place: Path) -> None:
    with program(ORDERS):
        narrow, wide = top("--once", "--interval", "0.1"), top("--once", "--interval", "0.1", columns=160)
    lines = narrow.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("orders ")
    assert [line.split()[0] for line in lines if line[:7] in ("pricing", "asker  ", "absolut", "log    ")] == [
        *("pricing", "asker", "absolutes", "log"),
    ]
    assert "quote" not in narrow.stdout
    assert "list quote" in wide.stdout
    assert "\x1b" not in narrow.stdout, "colours are for terminals"


def test_statistics_of_a_node_tell_of_its_agents_and_of_pools(node: tw.Node) -> None:
    node.agent(lambda n: n, id="pricing")
    with tw.Pool(abs, workers=1, name="seen", capacity=7) as pool:
        pool.sync.submit(-1)
        now = node.statistics()
        assert [row["agent"] for row in now["agents"]] == ["pricing"]
        assert [(row["name"], row["handled"], row["capacity"]) for row in now["pools"] if row["name"] == "seen"] == [
            ("seen", 1, 7)
        ]
    assert "seen" not in [row["name"] for row in node.statistics()["pools"]]


def test_services_are_seen_in_statistics_and_in_the_table(node: tw.Node) -> None:
    def fails() -> None:
        raise KeyError

    node.serve({"add": lambda a, b: a + b, "fails": fails}, name="math", instance="blue")
    calls = node.client("math").sync
    assert [calls.add(1, n) for n in range(3)] == [1, 2, 3]
    with pytest.raises(KeyError):
        calls.fails()
    (row,) = node.statistics()["services"]
    assert (row["service"], row["instance"], row["calls"], row["errors"]) == ("math", "blue", 4, 1)
    assert (row["in_flight"], row["waiting"]) == (0, 0)
    assert node.statistics()["remote"] == {"given": 0, "held": 0}
    seen = with_rates(json.loads(look(node, 1.0)), None)
    (line,) = [line for line in drawn(seen, 100, None).splitlines() if line.startswith("math")]
    assert line.split()[:3] == ["math", "blue", "0"]


def test_agents_of_other_nodes_are_looked_at_there(place: Path) -> None:
    async def story() -> None:
        async with tw.Node(name="hub") as hub:
            url = hub.listen("tide://127.0.0.1:0").url
            async with tw.Node(url, name="other") as other:
                hub.agent(abs, id="here")
                other.agent(abs, id="there")
                await hub.until(lambda _: "there" in hub.agents, PATIENCE_S)
                assert [row["id"] for row in json.loads(look(hub, 1.0))["agents"]] == ["here"]

    asyncio.run(story())


def test_statistics_do_not_load_what_is_not_used() -> None:
    text = (
        "import sys, tidewire as tw\n"
        "with tw.Node() as node:\n    print(node.statistics()['agents'], node.statistics()['pools'])\n"
        "kinds = ('tidewire.agents', 'tidewire.pools', 'tidewire.top', 'tidewire.services', 'tidewire.objects')\n"
        "print([name for name in sys.modules if name.startswith(kinds)])"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=PACKAGE)
    assert ran.stdout == "[] []\n[]\n", ran.stderr


def test_rates_come_from_two_looks_and_the_loaded_come_first(place: Path) -> None:
    with tw.Node(inspect=True) as node:
        calm, eager = node.spawn(lambda n: n, name="calm"), node.spawn(lambda n: n, name="eager")
        node.sync.ask(calm, 1)
        first = with_rates(json.loads(look(node, 1.0)), None)
        assert {row["handled_per_s"] for row in first["actors"]} == {None}
        for n in range(10):
            node.sync.ask(eager, n)
        now = json.loads(look(node, 2.0))
        second = with_rates(now, first)
        rate = round(10 / (now["at_s"] - first["at_s"]), 1)
        assert [(row["name"], row["handled_per_s"]) for row in second["actors"]] == [("eager", rate), ("calm", 0.0)]
        assert with_rates(now, second) is second, "the same answer again changes no rate"


def test_an_answer_has_a_bound(place: Path) -> None:
    with tw.Node() as node:
        for n in range(OTHERS_MAX + 10):
            node.spawn(lambda n: n)
        for n in range(400):
            node.agent(lambda n: n, id=f"agent-{n}", capabilities=["c" * 8_000])
        line = look(node, 1.0)
        assert len(line) <= ANSWER_BYTES_MAX
        answer = json.loads(line)
        assert (answer["agents_count"], len(answer["agents"])) == (400, 50)
        assert (answer["actors_count"], len(answer["actors"])) == (OTHERS_MAX + 10, OTHERS_MAX)


def test_names_do_not_reach_the_terminal_as_commands(place: Path) -> None:
    with tw.Node(name="n\x1b[2J[red]") as node:
        node.agent(lambda n: n, id="a\x1b]0;title\x07[bold]", type="[blink]\n")
        node.spawn(lambda n: n, name="b\r\x9b1m")
        shown = drawn(with_rates(json.loads(look(node, 1.0)), None), 200, None)
    assert all(text in shown for text in ("[red]", "[bold]", "[blink]", "1m"))
    assert not {"\x1b", "\x07", "\r", "\x9b"} & set(shown)


def test_a_picture_keeps_to_the_height_of_the_terminal(place: Path) -> None:
    with tw.Node() as node:
        for n in range(30):
            node.agent(lambda n: n, id=f"agent-{n}")
            node.spawn(lambda n: n, name=f"actor-{n}")
        seen = with_rates(json.loads(look(node, 1.0)), None)
    # A pool of another test that has failed is shown for as long as somebody holds it.
    seen |= {"pools": [], "pools_count": 0}
    for height in (16, 24, 50):
        lines = drawn(seen, 80, height).splitlines()
        assert len(lines) <= height
    assert [line for line in lines if "more" in line] == ["and 11 more", "and 11 more"]
    assert shared([1, 9, 3], 7) == [1, 3, 3]
    assert shared([1, 2], 99) == [1, 2]


def drawn(seen: dict[str, Any], width: int, height: int | None) -> str:
    written = io.StringIO()
    Console(file=written, width=width, highlight=False).print(picture(seen, width, height))
    return written.getvalue()


# On and off


def test_a_node_that_was_not_asked_to_opens_nothing(place: Path) -> None:
    with tw.Node():
        assert not place.exists()
        assert threads() == []
        ran = top()
    assert ran.returncode == 1
    assert "tw.Node(inspect=True)" in ran.stderr
    assert "TIDEWIRE_INSPECT=1" in ran.stderr


@pytest.mark.parametrize(("value", "on"), [("1", True), ("Yes", True), ("on", True), ("0", False), ("False", False)])
def test_the_environment_decides_for_nodes_that_do_not(
    place: Path, monkeypatch: pytest.MonkeyPatch, value: str, on: bool
) -> None:
    monkeypatch.setenv("TIDEWIRE_INSPECT", value)
    with tw.Node(name="asked"):
        assert threads() == (["asked-inspect"] if on else [])
    with tw.Node(inspect=False):
        assert threads() == []


@pytest.mark.parametrize("value", ["2", "", "enable"])
def test_an_environment_that_says_neither_is_named(place: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TIDEWIRE_INSPECT", value)
    with pytest.raises(tw.ConfigError, match=f"TIDEWIRE_INSPECT: {value!r} is not allowed: use 1, true") as raised:
        tw.Node()
    assert raised.value.problems == [str(raised.value)]


def test_inspect_is_a_bool(place: Path) -> None:
    with pytest.raises(tw.InvalidArgument, match="inspect: 'yes' is not allowed: give True, False, or None"):
        tw.Node(inspect="yes")  # type: ignore[arg-type]


def test_socket_and_thread_end_with_the_node(place: Path) -> None:
    with tw.Node(name="a b/c", inspect=True) as node:
        (path,) = place.iterdir()
        assert path.name == f"{os.getpid()}-a_b_c.sock"
        assert (place.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
        assert ask(path, "who", PATIENCE_S)["node"] == "a b/c"
        assert threads() == ["a b/c-inspect"]
    assert node.ledger is not None
    assert list(place.iterdir()) == []
    assert threads() == []


def test_they_end_also_in_asyncio_and_with_a_node_that_nobody_holds(place: Path) -> None:
    async def story() -> None:
        async with tw.Node(inspect=True):
            assert len(list(place.iterdir())) == 1

    asyncio.run(story())
    assert (list(place.iterdir()), threads()) == ([], [])
    forgotten = tw.Node(inspect=True)
    forgotten.start()
    del forgotten
    gc.collect()
    for thread in inspectors():
        thread.join(PATIENCE_S)
    assert (list(place.iterdir()), threads()) == ([], [])


def test_a_process_ends_although_its_node_was_never_stopped(place: Path) -> None:
    text = "import tidewire as tw\nnode = tw.Node(inspect=True)\nnode.start()\nprint('ready', flush=True)"
    with program(text) as ended:
        assert ended.wait(PATIENCE_S) == 0
    assert list(place.iterdir()) == []


def test_a_killed_process_leaves_a_socket_that_top_removes(place: Path) -> None:
    with program(ORDERS) as orders:
        orders.kill()
        orders.wait(PATIENCE_S)
        assert [path.name for path in place.iterdir()] == [f"{orders.pid}-orders.sock"]
        ran = top("--once")
    assert (ran.returncode, list(place.iterdir())) == (1, [])
    assert "no node can be looked at" in ran.stderr


def test_the_child_of_a_fork_does_not_keep_the_socket(place: Path) -> None:
    forking = (
        "import os, signal, sys, tidewire as tw\n"
        "with tw.Node(name='parent', inspect=True) as node:\n"
        "    for ends in (True, False):\n"
        "        child = os.fork()\n"
        "        if child == 0 and ends:\n            sys.exit(0)\n"
        "        if child == 0:\n            signal.pause()\n"
        "        if ends:\n            os.waitpid(child, 0)\n"
        "    node.spawn(lambda n: n, name=f'child-{child}')\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    with program(forking) as parent:
        (path,) = place.iterdir()
        (row,) = ask(path, "top", PATIENCE_S)["actors"]
        child = int(row["name"].removeprefix("child-"))
        try:
            parent.kill()
            parent.wait(PATIENCE_S)
            assert top("--once").returncode == 1, "the child does not answer for its parent"
            assert list(place.iterdir()) == []
        finally:
            os.kill(child, signal.SIGKILL)


# Who may look


def wrong_mode(place: Path) -> str:
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    return "mode 0755"


def a_link(place: Path) -> str:
    (place.parent / "elsewhere").mkdir(mode=0o700)
    place.symlink_to(place.parent / "elsewhere")
    return "is a link"


def a_file(place: Path) -> str:
    place.touch(mode=0o600)
    return "is no directory"


def somebody_elses(place: Path) -> str:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    place.mkdir(mode=0o700)
    os.chown(place, NOBODY, NOBODY)
    return f"belongs to user {NOBODY}"


@pytest.mark.parametrize("spoil", [wrong_mode, a_link, a_file, somebody_elses])
def test_a_directory_that_others_can_change_is_refused(place: Path, spoil: Callable[[Path], str]) -> None:
    problem = spoil(place)
    node = tw.Node(inspect=True)
    with pytest.raises(tw.ConfigError, match=problem):
        node.start()
    assert threads() == []
    ran = top("--once")
    assert ran.returncode == 1
    assert problem in ran.stderr
    place.rename(place.parent / "away")
    with node:
        assert len(list(place.iterdir())) == 1, "a start that was refused has started nothing"


def test_a_directory_that_is_not_there_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere/at/all")
    with pytest.raises(tw.ConfigError, match=r"/nowhere/at/all.*set XDG_RUNTIME_DIR"):
        tw.Node(inspect=True).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_gets_no_answer_even_through_an_open_directory(place: Path) -> None:
    stranger = (
        f"import os, socket, sys; os.setuid({NOBODY})\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        'try:\n    s.sendall(b\'{"ask": "who"}\\n\'); print(s.recv(100))\n'
        "except OSError as error:\n    print('dropped')"
    )
    with tw.Node(inspect=True):
        (path,) = place.iterdir()
        for opened in (place.parent, place, path):
            opened.chmod(0o777)
        ran = subprocess.run(
            [sys.executable, "-c", stranger, str(path)], capture_output=True, text=True, check=False, timeout=60
        )
        assert ran.stdout in ("b''\n", "dropped\n"), ran.stderr
        assert ask(path, "who", PATIENCE_S)["pid"] == os.getpid()


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


# Several nodes


def test_several_nodes_are_listed_and_one_is_chosen(place: Path) -> None:
    with program(ORDERS) as orders, tw.Node(name="here", inspect=True), tw.Node(name="here", inspect=True):
        ran = top("--once")
        assert ran.returncode == 1
        assert "3 nodes run: choose one with --node" in ran.stderr
        keys = [f"{os.getpid()}-here", f"{os.getpid()}-here~2", f"{orders.pid}-orders"]
        assert sorted(line.split()[0] for line in ran.stderr.splitlines()[1:]) == sorted(keys)
        for wanted, pid in (("orders", orders.pid), (str(orders.pid), orders.pid), (keys[0], os.getpid())):
            chosen = top("--json", "--interval", "0.1", "--node", wanted)
            assert json.loads(chosen.stdout)["pid"] == pid
        assert "2 nodes are called 'here'" in top("--node", "here").stderr
        assert "node: 'elsewhere' is not among" in top("--node", "elsewhere").stderr


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "86400"])
def test_an_interval_has_bounds(place: Path, interval: str) -> None:
    ran = top("--interval", interval)
    assert ran.returncode == 2
    assert "interval: " in ran.stderr
    assert "from 0.1 to 3,600" in ran.stderr


# In a terminal


class Terminal:
    """``tidewire top`` in a terminal of its own."""

    def __init__(self) -> None:
        self.keyboard, self.inside = pty.openpty()
        fcntl.ioctl(self.inside, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.inside)
        self.shown = b""
        self.top = subprocess.Popen(
            [sys.executable, "-m", "tidewire", "top", "--interval", "0.1"],
            stdin=self.inside,
            stdout=self.inside,
            stderr=self.inside,
            cwd=PACKAGE,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )

    def wait_for(self, text: bytes) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < end_s, self.shown
            if select.select([self.keyboard], [], [], 1.0)[0]:
                self.shown += os.read(self.keyboard, 65_536)

    def end(self) -> int:
        """Wait for the end. What is shown is read meanwhile, since top waits for room to show it."""
        ended = os.pidfd_open(self.top.pid)
        try:
            while ended not in (ready := select.select([self.keyboard, ended], [], [], PATIENCE_S)[0]):
                assert ready, self.shown
                self.shown += os.read(self.keyboard, 65_536)
        finally:
            os.close(ended)
        return self.top.wait()

    def close(self) -> None:
        self.top.kill()
        self.top.wait()
        os.close(self.keyboard)
        os.close(self.inside)


@pytest.fixture
def terminal(place: Path) -> Iterator[Terminal]:
    """A terminal that shows the node of the program that is given."""
    with program(ORDERS) as orders:
        terminal = Terminal()
        terminal.orders = orders  # type: ignore[attr-defined]
        try:
            terminal.wait_for(b"q ends")
            terminal.wait_for(b"pricing")
            yield terminal
        finally:
            terminal.close()


def test_q_ends_it_and_the_terminal_is_as_before(terminal: Terminal) -> None:
    os.write(terminal.keyboard, b"q")
    assert terminal.end() == 0
    assert termios.tcgetattr(terminal.inside) == terminal.before
    terminal.wait_for(b"\x1b[?1049l")


def test_an_interrupt_ends_it_and_the_terminal_is_as_before(terminal: Terminal) -> None:
    terminal.top.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert termios.tcgetattr(terminal.inside) == terminal.before


def test_a_node_that_goes_in_the_middle_is_told_of(terminal: Terminal) -> None:
    terminal.orders.kill()  # type: ignore[attr-defined]
    assert terminal.end() == 1
    terminal.wait_for(b"is gone: the node has stopped, or its process has ended")
    assert termios.tcgetattr(terminal.inside) == terminal.before
