"""The service ``$sys`` of nodes that have joined a hub: who sees it, and who may call it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import tidewire as tw
from command_support import run_all
from link_processes import programs
from tidewire import _limits as limits
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
        assert 0 < seen["round_trip_us"] < PATIENCE_S * 1e6
        assert "agent of second" in other.stdout


@pytest.mark.promise("P13.101")
async def test_a_link_counts_its_bytes_and_loses_credit_to_what_waits(place: Path) -> None:
    payload, most = os.urandom(50_000), limits.LINK_QUEUE_BYTES.default
    with programs() as started:
        hub, url = started.hub()
        async with tw.Node(url, name="writer") as writer, tw.Node(url, name="reader", inspect=True) as reader:
            arrived = asyncio.Event()

            async def read(order: bytes) -> None:
                if order == b"last":
                    arrived.set()

            def count(node: tw.Node, key: str) -> int:
                return int(node.statistics()["links"][key])

            await reader.subscribe("orders", read)
            os.kill(hub.process.pid, signal.SIGSTOP)
            for _ in range(400):
                writer.publish("orders", payload)
            # The system holds a part of 20 MB.
            assert most - 20_100_000 < count(writer, "credit_bytes") < most - 5_000_000
            os.kill(hub.process.pid, signal.SIGCONT)
            writer.publish("orders", b"last")
            await arrived.wait()
            received = count(reader, "received_bytes")
            assert 20_000_000 < count(writer, "sent_bytes") < 20_100_000 > received > 20_000_000
            assert count(writer, "credit_bytes") == most
            (watched,) = [info for info in await writer.services() if info.name == "$sys"]
            seen = await writer.client("$sys").with_(instance=watched.instances[0]).statistics()
            assert seen["process"][0]["received_bytes"] == seen["received_bytes"] > received


def test_a_node_that_was_not_asked_to_serves_no_statistics(hub: tuple[tw.Node, str], place: Path) -> None:
    node, url = hub
    with tw.Node(url, name="shy", inspect=False):
        assert node.statistics()["links"]["services"] == {}


def test_a_node_whose_event_loop_is_blocked_is_seen_at_its_socket(hub: tuple[tw.Node, str], place: Path) -> None:
    _, url = hub
    with program(BLOCKED, url) as stuck:
        seen = json.loads(top("--json", "--interval", "0.1").stdout)
        assert (seen["node"], seen["pid"]) == ("stuck", stuck.pid)
