"""Where a configuration comes from, and what is wrong with one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw


def test_the_environment_wins_over_the_file_and_the_file_over_the_code(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("mailbox_capacity = 20\n")
    code, environment = {"mailbox_capacity": 10}, {"TIDEWIRE_MAILBOX_CAPACITY": "30"}
    for config, capacity in (
        (tw.Config(code), 10),
        (tw.Config(code, file), 20),
        (tw.Config(code, file, environment), 30),
        (tw.Config(code, environment=environment), 30),
    ):
        with tw.Node(config=config) as node:
            assert node.spawn(print).statistics()["capacity"] == capacity


ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)
NO_CONFIGURATIONS = [
    7,
    "/no/such/file.toml",
    {"mailbox_capacity": object()},
    {1: 2},
    {"\ud800": 2},
    {"dispatchers": "\ud800"},
    {"dispatchers": ENDLESS},
    tw.Config(environment={"TIDEWIRE_SPIN_US": "\udcff"}),
    tw.Config(environment={"TIDEWIRE_SPIN_US": 5}),  # type: ignore[dict-item]
]


@pytest.mark.parametrize("config", NO_CONFIGURATIONS, ids=range(len(NO_CONFIGURATIONS)))
def test_a_wrong_configuration_is_refused(config: Any) -> None:
    with pytest.raises(tw.ConfigError):
        tw.Node(config=config)


@pytest.mark.parametrize("fields", [{"values": "tidewire.toml"}, {"options": 7}])
def test_a_configuration_of_no_table_names_its_field(fields: dict[str, Any]) -> None:
    [name] = fields
    with pytest.raises(tw.ConfigError, match=f"{name}: .* is not a table: give a dict, or .*file="):
        tw.Config(**fields)


def test_far_more_threads_than_cores_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "tidewire")
    tw.Node(config={"dispatchers": {"io": {"threads": 1_000}}})
    assert any("threads on" in record.getMessage() for record in caplog.records)


def test_waits_that_a_call_does_not_name_are_the_configured_ones() -> None:
    config = {"ask_timeout_ms": 20, "stop_timeout_ms": 20}
    with tw.Node(config=config) as node:
        started, held, door = threading.Event(), threading.Event(), threading.Event()

        def wait(begun: threading.Event) -> Callable[[object], None]:
            def handler(_: object) -> None:
                begun.set()
                door.wait()

            return handler

        actor = node.spawn(wait(started), name="waits")
        node.subscribe("a", actor)
        asked = node.agent(lambda payload: None, id="asks")
        node.agent(wait(held), id="agent-waits")
        # Both are at work before anybody waits for them.
        actor.tell(0)
        asked.sync.send(0, to="agent-waits")
        assert started.wait(30)
        assert held.wait(30)
        for ask in (
            lambda: node.sync.ask(actor, 1),
            lambda: node.sync.request("a", 1),
            lambda: actor.ask(1).wait(),
            lambda: node.request("a", 1).wait(),
            lambda: asked.sync.request(1, to="agent-waits"),
        ):
            with pytest.raises(tw.AskTimeout, match=r"within 20 ?ms"):
                ask()
        assert node.sync.stop(actor).stuck
        assert asyncio.run(node.stop()).stuck
        door.set()
