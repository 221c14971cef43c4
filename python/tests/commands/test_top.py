"""``tidewire top``: what is seen of a node, and of several."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from command_support import run_all
from rich.console import Console
from tidewire.top.rates import with_rates
from tidewire.top.screen import picture
from top_support import ORDERS, PACKAGE, PATIENCE_S, ask, look, program, top

# Contents of the screen


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
        *("pricing", "asker", "absolutes", "log")
    ]
    assert "quote" not in narrow.stdout
    assert "list quote" in wide.stdout
    assert "\x1b" not in narrow.stdout, "colours are for terminals"


def test_services_are_seen_in_statistics_and_in_the_table(place: Path) -> None:
    def fails() -> None:
        raise KeyError

    with tw.Node(inspect=True) as node:
        node.serve({"add": lambda a, b: a + b, "fails": fails}, name="math", instance="blue")
        calls = node.client("math").sync
        assert [calls.add(1, n) for n in range(3)] == [1, 2, 3]
        with pytest.raises(KeyError):
            calls.fails()
        (row,) = node.statistics()["services"]
        assert (row["service"], row["instance"], row["calls"], row["errors"]) == ("math", "blue", 4, 1)
        assert (row["in_flight"], row["waiting"]) == (0, 0)
        assert node.statistics()["remote"] == {"given": 0, "held": 0}
        shown = top("--once", "--interval", "0.1", columns=100).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("math")]
    assert line.split()[:3] == ["math", "blue", "0"]


async def test_a_joined_hub_and_the_routes_of_a_caller_are_seen(place: Path) -> None:
    async with tw.Node(name="paris") as paris, tw.Node(name="berlin", inspect=True) as berlin:
        url = paris.listen("tide://127.0.0.1:0").url
        berlin.listen("tide://127.0.0.1:0")
        for number in (1, 2):
            await berlin.serve({"quote": lambda: 1}, name="pricing", instance=f"i{number}")
        await paris.serve({"pay": lambda: None}, name="billing")
        await berlin.join(url, export=["pricing", "missing", "orders.>"], import_=["paris:billing"])
        await berlin.client("paris:billing").pay()
        quote = berlin.client("pricing").with_(policy="lowest_latency").quote
        for _ in range(8):
            await quote()
        async with paris.subscription("orders.*") as orders:
            berlin.publish("orders.new", 1)
            await anext(orders)
        (join,) = berlin.statistics()["joins"]
        assert (join["name"], join["url"], join["state"], join["lost"]) == ("paris", url, "joined", 0)
        assert (join["calls_out"], join["calls_in"], join["messages_out"], join["messages_in"]) == (1, 0, 1, 0)
        assert (join["exported"], join["imported"]) == (["berlin:pricing"], ["paris:billing"])
        routes = [row for row in berlin.statistics()["routes"] if row["service"] == "pricing"]
        assert [(row["method"], row["instance"]) for row in routes] == [("quote", "i1"), ("quote", "i2")]
        assert sum(row["handled"] for row in routes) == 8
        assert all(row["expected_us"] > 0 and row["reason"] for row in routes)
        screen = Console(file=io.StringIO(), width=140)
        with screen.capture() as shown:
            screen.print(picture(with_rates(look(berlin), None), 140, None))
        lines = {line.split()[0]: line.split() for line in shown.get().splitlines() if line.strip()}
        assert lines["paris"][1] == "joined"
        assert lines["pricing.quote"][1] in ("i1", "i2")
        await paris.stop()
        await berlin.until(lambda seen: seen["joins"][0]["state"] == "lost", PATIENCE_S)


async def test_agents_of_other_nodes_are_looked_at_there(place: Path) -> None:
    async with tw.Node(name="hub", inspect=True) as hub:
        (path,) = place.iterdir()
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="other") as other:
            hub.agent(abs, id="here")
            other.agent(abs, id="there")
            await hub.until(lambda _: "there" in hub.agents, PATIENCE_S)
            seen = await asyncio.to_thread(ask, path, "statistics")
            assert [row["id"] for row in seen["agents"]] == ["here"]


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
        first = with_rates(look(node), None)
        assert {row["handled_per_s"] for row in first["actors"]} == {None}
        for n in range(10):
            node.sync.ask(eager, n)
        now = look(node)
        second = with_rates(now, first)
        rate = round(10 / (now["at_s"] - first["at_s"]), 1)
        assert [(row["name"], row["handled_per_s"]) for row in second["actors"]] == [("eager", rate), ("calm", 0.0)]
        assert with_rates(now, second) is second, "the same answer again changes no rate"


def test_an_answer_has_a_bound(place: Path) -> None:
    with tw.Node(inspect=True) as node:
        (path,) = place.iterdir()
        for n in range(60):
            node.spawn(lambda n: n)
        for n in range(400):
            node.agent(lambda n: n, id=f"agent-{n}", capabilities=["c" * 8_000])
        answer = ask(path, "statistics")
        assert len(json.dumps(answer, separators=(",", ":"))) <= 1_048_576
        assert (answer["agents_count"], len(answer["agents"])) == (400, 50)
        assert (answer["actors_count"], len(answer["actors"])) == (60, 50)


def test_names_do_not_reach_the_terminal_as_commands(place: Path) -> None:
    with tw.Node(name="n\x1b[2J[red]", inspect=True) as node:
        node.agent(lambda n: n, id="a\x1b]0;title\x07[bold]", type="[blink]\n")
        node.spawn(lambda n: n, name="b\r\x9b1m")
        shown = top("--once", "--interval", "0.1", columns=200).stdout
    assert all(text in shown for text in ("[red]", "[bold]", "[blink]", "1m"))
    assert not {"\x1b", "\x07", "\r", "\x9b"} & set(shown)


def test_a_picture_keeps_to_the_height_of_the_terminal(place: Path) -> None:
    with tw.Node() as node:
        for n in range(30):
            node.agent(lambda n: n, id=f"agent-{n}")
            node.spawn(lambda n: n, name=f"actor-{n}")
        seen = with_rates(look(node), None)
    # A pool of another test that has failed is shown for as long as somebody holds it.
    seen |= {"pools": [], "pools_count": 0}
    for height in (16, 24, 50):
        lines = drawn(seen, 80, height).splitlines()
        assert len(lines) <= height
    assert [line for line in lines if "more" in line] == ["and 11 more", "and 11 more"]


def drawn(seen: dict[str, Any], width: int, height: int | None) -> str:
    written = io.StringIO()
    Console(file=written, width=width, highlight=False).print(picture(seen, width, height))
    return written.getvalue()


# Several nodes


def test_several_nodes_are_listed_and_one_is_chosen(place: Path) -> None:
    with program(ORDERS) as orders, tw.Node(name="here", inspect=True), tw.Node(name="here", inspect=True):
        keys = [f"{os.getpid()}-here", f"{os.getpid()}-here~2", f"{orders.pid}-orders"]
        wanted = {"orders": orders.pid, str(orders.pid): orders.pid, keys[0]: os.getpid()}
        several, *chosen, twice, nowhere = run_all(
            ("top", "--once"),
            *(("top", "--json", "--interval", "0.1", "--node", name) for name in wanted),
            ("top", "--node", "here"),
            ("top", "--node", "elsewhere"),
        )
        assert several.returncode == 1
        assert "3 nodes run: choose one with --node" in several.stderr
        assert sorted(line.split()[0] for line in several.stderr.splitlines()[1:]) == sorted(keys)
        assert [json.loads(one.stdout)["pid"] for one in chosen] == [*wanted.values()]
        assert "2 nodes are called 'here'" in twice.stderr
        assert "node: 'elsewhere' is not among" in nowhere.stderr


def test_an_interval_has_bounds(place: Path) -> None:
    intervals = ("0", "-1", "nan", "inf", "86400")
    for ran in run_all(*(("top", "--interval", interval) for interval in intervals)):
        assert ran.returncode == 2
        assert "interval: " in ran.stderr
        assert "from 0.1 to 3,600" in ran.stderr
