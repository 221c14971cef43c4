"""A node can be looked at by its own user, and only if it was asked to."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import tidewire as tw
from top_support import NOBODY, ORDERS, PATIENCE_S, ask, inspectors, program, threads, top

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
        assert ask(path, "about")["node"] == "a b/c"
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
    for thread in inspectors():
        while thread.is_alive():
            # Beside a collection in another thread this one does nothing.
            gc.collect()
            thread.join(0.1)
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


# Access of users


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
        "try:\n    print(s.recv(100))\nexcept OSError as error:\n    print('dropped')"
    )
    # A node that joins would have so long to identify itself.
    with tw.Node(inspect=True, config={"links": {"link_greeting_ms": 600_000}}):
        (path,) = place.iterdir()
        for opened in (place.parent, place, path):
            opened.chmod(0o777)
        ran = subprocess.run(
            [sys.executable, "-c", stranger, str(path)], capture_output=True, text=True, check=False, timeout=60
        )
        assert ran.stdout in ("b''\n", "dropped\n"), ran.stderr
        assert ask(path, "about")["pid"] == os.getpid()


# Clients that are a nuisance


def test_a_method_that_is_not_known_arguments_and_actions_are_refused(place: Path) -> None:
    with tw.Node(inspect=True):
        (path,) = place.iterdir()
        for unknown in ("fly", "act"):
            with pytest.raises(tw.NoResponders, match=f"nobody answers '{unknown}' here"):
                ask(path, unknown)
        with pytest.raises(tw.InvalidArgument, match=r"\$sys.about: it takes no arguments"):
            ask(path, "about", 1)


def test_clients_beyond_the_capacity_are_refused(place: Path) -> None:
    with tw.Node(inspect=True), ExitStack() as joined:
        (path,) = place.iterdir()
        url = f"tide+unix://{path}"
        watchers: list[tw.Node] = []
        with pytest.raises(tw.LimitExceeded):
            while len(watchers) < 100:
                watchers.append(joined.enter_context(tw.Node(url, inspect=False)))
        assert watchers
        subject = f"svc.$sys.{path.stem}.about"
        assert {watcher.request(subject, (), PATIENCE_S).wait()["pid"] for watcher in watchers} == {os.getpid()}
