"""The service ``$sys`` of nodes that have joined a hub: who sees it, and who may call it."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import tidewire as tw
from command_support import run_all
from top_support import PATIENCE_S, program, top

JOINED = """
import sys
import tidewire as tw
with tw.Node(sys.argv[1], name=sys.argv[2], inspect=True) as node:
    node.agent(lambda n: n, id=f"agent of {node.name}")
    print("ready", flush=True)
    sys.stdin.readline()
"""
BLOCKED = """
import asyncio, sys
import tidewire as tw
async def main():
    async with tw.Node(sys.argv[1], name="stuck", inspect=True) as node:
        print("ready", flush=True)
        sys.stdin.readline()
asyncio.run(main())
"""


@pytest.fixture
def hub() -> Iterator[tuple[tw.Node, str]]:
    with tw.Node(name="hub", inspect=False) as node:
        yield node, node.listen("tide://127.0.0.1:0").url


def test_top_looks_at_the_nodes_of_a_hub(hub: tuple[tw.Node, str], place: Path) -> None:
    _, url = hub
    none = top("--url", url, "--once")
    assert (none.returncode, "no node can be looked at" in none.stderr) == (1, True)
    with program(JOINED, url, "a b") as first, program(JOINED, url, "second"):
        looks = ("top", "--url", url, "--interval", "0.1")
        several, one = run_all((*looks, "--once"), (*looks, "--json", "--node", "a b"))
        [other] = run_all(("top", "--once", "--node", "second"), TIDEWIRE_URL=url)
        assert several.returncode == 1
        assert "2 nodes run: choose one with --node" in several.stderr
        seen = json.loads(one.stdout)
        assert (seen["node"], seen["pid"], seen["url"]) == ("a b", first.pid, url)
        assert [row["id"] for row in seen["agents"]] == ["agent of a b"]
        assert "agent of second" in other.stdout


def test_statistics_are_a_service_like_any_other(hub: tuple[tw.Node, str], place: Path) -> None:
    _, url = hub

    async def story() -> None:
        async with tw.Node(url, name="asker", inspect=False) as asker:
            (info,) = [info for info in await asker.services() if info.name == "$sys"]
            assert info.visibility == "private"
            assert [method.name for method in info.methods] == ["about", "statistics"]
            (key,) = info.instances
            calls = asker.client("$sys").with_(instance=key)
            assert (await calls.about())["node"] == "orders"
            assert [row["id"] for row in (await calls.statistics())["agents"]] == ["agent of orders"]

    with program(JOINED, url, "orders"):
        asyncio.run(story())


def test_a_node_that_was_not_asked_to_serves_no_statistics(hub: tuple[tw.Node, str], place: Path) -> None:
    node, url = hub
    with tw.Node(url, name="shy", inspect=False):
        assert node.statistics()["links"]["services"] == {}


def test_a_token_without_the_right_may_not_look(place: Path) -> None:
    with tw.Node(name="hub", inspect=True) as hub:
        tokens = [tw.Token("secret-of-all"), tw.Token("secret-of-one", user="one", call=("svc.pricing.>",))]
        url = hub.listen("tide://127.0.0.1:0", tokens=tokens).url
        looks = ("top", "--url", url, "--once", "--interval", "0.1", "--token")
        refused, allowed = run_all((*looks, "secret-of-one"), (*looks, "secret-of-all"))
        assert (refused.returncode, allowed.returncode) == (1, 0)
        assert "is not allowed with this token" in refused.stderr


def test_nothing_of_it_is_reached_over_http(place: Path) -> None:
    with tw.Node(name="hub", inspect=True) as hub:
        address = urlsplit(hub.listen("http://127.0.0.1:0").url).netloc
        (socket,) = place.iterdir()
        for path in ("/services/$sys/about", "/services/$sys/statistics", f"/services/$sys/{socket.stem}"):
            connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
            connection.request("POST", path, b"{}", {"content-type": "application/json"})
            assert connection.getresponse().status == 404
            connection.close()
        connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        connection.request("GET", "/openapi.json")
        assert b"$sys" not in connection.getresponse().read()
        connection.close()


def test_a_node_whose_event_loop_is_blocked_is_seen_at_its_socket(hub: tuple[tw.Node, str], place: Path) -> None:
    _, url = hub
    with program(BLOCKED, url) as stuck:
        seen = json.loads(top("--json", "--interval", "0.1").stdout)
        assert (seen["node"], seen["pid"]) == ("stuck", stuck.pid)


def test_names_of_services_that_begin_with_a_dollar_are_not_for_users(node: tw.Node) -> None:
    with pytest.raises(tw.InvalidArgument, match=r"name: '\$sys' is not allowed: names that begin with \$"):
        node.serve({"about": lambda: 1}, name="$sys")
