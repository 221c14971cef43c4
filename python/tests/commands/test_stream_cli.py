"""``tidewire stream``, ``kv``, ``log`` and ``crashtest``, as processes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from command_support import run_all, said
from link_processes import Programs


def tidewire(*args: object) -> tuple[int, Any]:
    """Run a command with ``--json``: its exit code and what it printed."""
    [ended] = run_all([*map(str, args), "--json"])
    return said(ended)


def test_a_folder_is_looked_at_and_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tw.Node(data=tmp_path) as node:
        node.sync.stream("orders", subjects=["orders.>"]).publish("orders.a", {"n": 1}, key="k")
        node.sync.kv("config").put("a.b", 7)
    at = ("--at", tmp_path)
    assert tidewire("stream", "pub", "orders", "orders.b", '{"n": 2}', *at)[1]["sequence"] == 2
    code, events = tidewire("stream", "read", "orders", *at)
    assert (code, [(event["subject"], event["value"]) for event in events]) == (
        0,
        [("orders.a", {"n": 1}), ("orders.b", {"n": 2})],
    )
    assert tidewire("stream", "info", "orders", *at)[1]["messages"] == 2
    assert tidewire("kv", "get", "config", "a.b", *at)[1]["value"] == 7
    assert tidewire("kv", "put", "config", "a.c", "text", *at)[1] == {"revision": 2}
    assert tidewire("stream", "purge", "orders", "--keep", 1, *at)[1] == {"purged": 1}
    assert tidewire("stream", "info", "orders", "--url", tmp_path)[1]["messages"] == 1
    monkeypatch.setenv("TIDEWIRE_URL", str(tmp_path))
    assert tidewire("stream", "info", "orders")[1]["messages"] == 1
    code, told = tidewire("stream", "info", "nothing", *at)
    assert (code, told["error"]["code"]) == (1, "not_found")


def test_events_are_chosen_by_time_key_and_text_and_a_stream_is_watched(started: Programs, tmp_path: Path) -> None:
    with tw.Node(data=tmp_path, name="center") as node:
        url = node.listen("tide://127.0.0.1:0").url
        orders = node.sync.stream("orders", subjects=["orders.>"])
        for number, key in enumerate("abab"):
            orders.publish(f"orders.{key}", {"n": number}, key=key)
        times = [event.time.isoformat() for event in orders.read()]

        def numbers(*options: object) -> list[int]:
            code, found = tidewire("stream", "read", "orders", "--url", url, *options)
            assert code == 0, found
            return [one["value"]["n"] for one in (found if isinstance(found, list) else [found])]

        assert numbers("--since", "1h", "--key", "b") == [1, 3]
        assert numbers("--since", times[1], "--until", times[2]) == [1, 2]
        assert numbers("--grep", "orders.a.*3|b.*1") == [1]
        assert numbers("--until", "1h") == []
        wrong = (("--since", "yesterday"), ("--until", "2026-11-23T21:00:00"), ("--grep", "("))
        for option, text in wrong:
            code, told = tidewire("stream", "read", "orders", "--url", url, option, text)
            assert (code, told["error"]["code"]) == (2, "invalid_argument") and f"{option}: {text!r}" in told["error"][
                "message"
            ]
        command = ("-m", "tidewire", "stream", "info", "orders", "--watch", "--json", "--url", url)
        watching = started.run(*command)
        assert json.loads(watching.line())["messages"] == 4
        orders.publish("orders.c", {"n": 4})
        assert json.loads(watching.line())["messages"] == 5
        watching.signal(signal.SIGINT)
        assert watching.ended() == 130


def test_schedules_are_made_listed_and_cancelled(tmp_path: Path) -> None:
    with tw.Node(data=tmp_path) as node:
        node.sync.stream("orders", subjects=["orders.>"])
    at = ("--at", tmp_path)
    nightly = ("stream", "schedule", "orders", "nightly", "0 22 * * mon-fri", "orders.due", '{"n": 1}')
    code, made = tidewire(*nightly, "--time-zone", "Europe/Berlin", "--key", "k", *at)
    assert (code, made["change"], made["value"], made["key"]) == (0, "made", {"n": 1}, "k")
    code, listed = tidewire("stream", "schedules", "orders", *at)
    assert (code, listed) == (0, [{name: value for name, value in made.items() if name != "change"}])
    assert tidewire(*nightly, *at)[1]["change"] == "replaced"
    assert tidewire("stream", "unschedule", "orders", "nightly", *at) == (0, {"cancelled": True})
    assert tidewire("stream", "unschedule", "orders", "nightly", *at) == (1, {"cancelled": False})
    code, told = tidewire("stream", "schedule", "orders", "wrong", "0 25 * * *", "orders.due", "1", *at)
    assert (code, told["error"]["code"]) == (2, "invalid_argument") and 'hour "25"' in told["error"]["message"]


def test_damage_is_found_and_what_is_whole_is_rescued(tmp_path: Path) -> None:
    data, rescued = tmp_path / "data", tmp_path / "rescued"
    with tw.Node(data=data) as node:
        stream = node.sync.stream("orders", subjects=["orders.>"])
        for number in range(10):
            stream.publish("orders.a", number)
    code, files = tidewire("log", "check", data)
    assert code == 0 and all(file["damage"] is None for file in files)
    [log] = (data / "streams").glob("orders.*/*.log")
    content = bytearray(log.read_bytes())
    content[content.index(b"orders.a") + 3] ^= 1
    log.write_bytes(content)
    code, files = tidewire("log", "check", data)
    assert code == 1 and [file["damage"] for file in files if file["damage"]]
    code, told = tidewire("stream", "ls", "--at", data)
    assert (code, told["error"]["code"]) == (1, "data_corrupt")
    assert tidewire("log", "salvage", data, "--into", rescued) == (0, {"rescued": 9})
    with tw.Node(data=rescued) as node:
        stream = node.sync.stream("orders", subjects=[">"], dedupe=0)
        assert [event.value for event in stream.read()] == list(range(1, 10))


@pytest.mark.promise("P17.1")
def test_crashtest_finds_nothing_lost(tmp_path: Path) -> None:
    code, told = tidewire("crashtest", "--data", tmp_path / "new", "--kills", 3)
    assert (code, told["lost"], told["kills"]) == (0, 0, 3)
