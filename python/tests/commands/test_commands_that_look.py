"""Commands that only look: where nothing is stored they say so, and leave the place as it was."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import tidewire as tw
from command_support import run_all

LOOKS = [
    ("stream", "ls"),
    ("stream", "info", "orders"),
    ("stream", "read", "orders"),
    ("stream", "sub", "orders"),
    ("stream", "schedules", "orders"),
    ("stream", "dead", "orders", "billing"),
    ("kv", "ls"),
    ("kv", "ls", "config"),
    ("kv", "get", "config", "a"),
    ("kv", "watch", "config"),
    ("command", "ls"),
    ("command", "show", "one"),
    ("command", "watch", "one"),
    ("agent", "ls"),
    ("agent", "show", "clerk"),
]
CHANGES = [
    ("stream", "pub", "orders", "orders.a", "1"),
    ("stream", "purge", "orders"),
    ("stream", "schedule", "orders", "nightly", "@daily", "orders.due", "1"),
    ("stream", "unschedule", "orders", "nightly"),
    ("stream", "rm", "orders"),
    ("stream", "requeue", "orders", "billing"),
    ("stream", "drop-dead", "orders", "billing", "1"),
    ("stream", "pause", "orders", "billing"),
    ("stream", "resume", "orders", "billing"),
    ("stream", "seek", "orders", "billing", "all"),
    ("stream", "rm-consumer", "orders", "billing"),
    ("kv", "put", "config", "a", "1"),
    ("kv", "rm", "config", "a"),
    ("command", "cancel", "one"),
    ("command", "retry", "one"),
    ("agent", "requeue", "clerk"),
    ("agent", "drop", "clerk", "1"),
]
"""Each changes what is there, and makes nothing: a program makes streams and buckets."""


@pytest.mark.parametrize("place", ["empty", "missing", "a file", "other files"])
def test_a_command_that_finds_no_data_folder_says_so_and_makes_nothing(tmp_path: Path, place: str) -> None:
    at = tmp_path / "x"
    json_wanted = place in ("missing", "a file")
    if place == "a file":
        at.write_text("no folder")
    elif place != "missing":
        at.mkdir()
    if place == "other files":
        # A state of other programs, and the lock that another Tidewire left in an empty folder.
        (at / "state").mkdir()
        (at / "state" / "window.json").write_text("{}")
        (at / "tidewire.lock").touch()
    before = contents(tmp_path)
    options = ["--json"] if json_wanted else []
    with_at = (*LOOKS, *CHANGES) if place in ("empty", "missing") else LOOKS[:1]
    commands = [[*command, "--at", str(at), *options] for command in with_at]
    commands += [["log", "check", str(at), *options]]
    commands += [["log", "salvage", str(at), "--into", str(tmp_path / "rescued"), *options]]
    commands += [] if json_wanted else [["console", "--data", str(at)]]
    for command, ended in zip(commands, run_all(*commands), strict=True):
        told = ended.stderr
        assert (ended.returncode, ended.stdout) == (1, ""), (command, ended)
        if json_wanted:
            error = json.loads(told)["error"]
            told = error["message"]
            assert error["code"] == "not_found", command
        assert f"there is no data folder at {str(at)!r}" in told, (command, told)
        assert "tw.Node(data=...)" in told and "tidewire up --data" in told, (command, told)
    assert contents(tmp_path) == before


def test_the_environment_may_name_the_folder(tmp_path: Path) -> None:
    [ended] = run_all(["stream", "ls"], TIDEWIRE_DATA=str(tmp_path))
    assert ended.returncode == 1 and f"there is no data folder at {str(tmp_path)!r}" in ended.stderr
    assert contents(tmp_path) == {}


@pytest.mark.promise("P17.126")
def test_looks_at_a_data_folder_are_the_same_while_a_program_has_it_open(tmp_path: Path) -> None:
    looks = [[*look, "--at", str(tmp_path), "--json"] for look in LOOKS if look[1] not in ("sub", "watch")]

    def look() -> dict[tuple[str, ...], tuple[int, str]]:
        ended = zip(looks, run_all(*looks, TIDEWIRE_TOKEN="of-a-hub"), strict=True)
        return {tuple(look[:2]): (one.returncode, one.stdout) for look, one in ended}

    with tw.Node(data=tmp_path) as node:
        node.sync.stream("orders", subjects=["orders.>"]).publish("orders.a", 1)
        node.sync.kv("config").put("a", 7)
        socket = tmp_path / "tidewire.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        found = look()
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
        [published] = run_all(["stream", "pub", "orders", "orders.b", "2", "--at", str(tmp_path)])
        assert (published.returncode, node.sync.stream("orders").info().messages) == (0, 2)
        node.sync.stream("orders").purge(keep=1)
    before = set(contents(tmp_path))
    assert not socket.exists()
    nothing_there = {("stream", "dead"), ("command", "show"), ("agent", "show")}
    assert {one for one, (code, _) in found.items() if code} == nothing_there
    changed = {("stream", "ls"), ("stream", "info"), ("stream", "read")}
    assert {one for one, told in look().items() if told != found[one]} == changed
    assert set(contents(tmp_path)) == before


@pytest.mark.promise("P17.126")
def test_the_socket_of_a_killed_program_blocks_nobody(tmp_path: Path) -> None:
    program = f"import os, tidewire as tw\nnode = tw.Node(data={str(tmp_path)!r})\nnode.start()\n"
    program += "node.sync.stream('orders').publish('orders', 1)\nos.kill(os.getpid(), 9)"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
        assert (tmp_path / "tidewire.sock").exists()
        [ended] = run_all(["stream", "read", "orders", "--at", str(tmp_path)])
        assert ended.returncode == 0, ended
    with tw.Node(data=tmp_path) as node:
        assert node.sync.stream("orders").info().messages == 2
        [ended] = run_all(["stream", "ls", "--at", str(tmp_path)])
        assert ended.returncode == 0 and "2 events" in ended.stdout, ended


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return what is below a folder: the bytes of files, None for folders."""
    below = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in below}


def test_the_console_is_opened_only_where_there_is_one() -> None:
    with tw.Node() as hub:
        gateway = hub.listen("http://127.0.0.1:0").url
        missing, link = run_all(["console", gateway], ["console", "tide://127.0.0.1:7420"])
    (gone,) = run_all(["console", gateway])
    assert (missing.returncode, link.returncode, gone.returncode) == (1, 2, 3), (missing, link, gone)
    assert all("--console" in ended.stderr for ended in (missing, gone)) and "HTTP address" in link.stderr
