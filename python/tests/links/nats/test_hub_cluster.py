"""``tidewire up --nats``: a hub whose nodes and clients reach the services of a cluster over NATS,
and the cluster those of its nodes.
"""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from typing import Any

import pytest
import tidewire as tw
from home_support import PATIENCE
from link_processes import Program, Programs

TOKEN = "a-long-secret"


class Bank(tw.Service, visibility="public"):
    @tw.method
    async def add(self, one: int, other: int) -> int:
        return one + other


def up(started: Programs, *options: str) -> tuple[Program, dict[str, Any]]:
    """Start a hub, and return what it says when it listens."""
    program = started.run("-m", "tidewire", "up", "--json", "--listen", "tide://127.0.0.1:0", *options)
    return program, dict(json.loads(program.line()))


async def post(url: str, path: str, body: Any) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(f"{url}/services/{path}", json.dumps(body).encode(), headers)

    def ask() -> Any:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    return await asyncio.to_thread(ask)


async def test_nodes_and_http_clients_of_a_hub_reach_the_cluster_and_it_them(nats_url: str, started: Programs) -> None:
    async with tw.Node(nats_url, name="far") as far:
        await far.serve(Bank(), name="bank")
        options = ("--nats", nats_url, "--name", "harbour", "--token", TOKEN, "--http", "127.0.0.1:0")
        program, said = await asyncio.to_thread(up, started, *options)
        tide, http = said["urls"]
        assert (said["hub"], said["nats"]) == ("harbour", nats_url)
        assert await post(http, "bank/add", [1, 2]) == 3
        with pytest.raises(tw.Unauthorized):
            async with tw.Node(tide, name="stranger"):
                pass
        async with tw.Node(tide, name="joined", token=TOKEN) as joined:
            assert await joined.client(Bank, name="bank").add(2, 3) == 5

            async def greet(name: str) -> str:
                return f"hello {name}"

            await joined.serve({"greet": greet}, name="porter")
            await far.until(lambda now: now["links"]["services"].get("porter", 0) > 0, PATIENCE)
            assert await far.client("porter").greet("far") == "hello far"
            # Streams of those that join live in JetStream.
            orders = await joined.stream("orders", subjects=["orders.>"])
            await orders.publish("orders.created", 7)
            found = [event.value async for event in (await far.find_stream("orders")).read(1, 1)]
            assert found == [7]
            program.signal(signal.SIGTERM)
            assert await asyncio.to_thread(program.ended) == 0


async def test_a_hub_that_is_killed_and_started_again_is_in_the_cluster_again(nats_url: str, started: Programs) -> None:
    async with tw.Node(nats_url, name="far") as far:
        await far.serve(Bank(), name="bank")
        program, _ = await asyncio.to_thread(up, started, "--nats", nats_url, "--name", "harbour")
        await asyncio.to_thread(program.kill)
        _, said = await asyncio.to_thread(up, started, "--nats", nats_url, "--name", "quay")
        async with tw.Node(said["urls"][0], name="joined") as joined:
            assert await joined.client("bank").add(1, 1) == 2


async def test_a_cluster_joins_a_hub_that_has_no_nats_and_shares_what_its_nodes_serve(
    nats_url: str, started: Programs
) -> None:
    async with tw.Node(nats_url, name="far") as far, tw.Node(name="paris") as paris:
        await far.serve(Bank(), name="bank")
        await paris.serve(Bank(), name="till")
        url = paris.listen("tide://127.0.0.1:0").url
        join = ("--join", url, "--as", "harbour", "--export", "bank,orders.>", "--import", "paris:till")
        await asyncio.to_thread(up, started, "--nats", nats_url, *join)
        for node, name in ((paris, "harbour:bank"), (far, "paris:till")):
            async for change in node.watch_services(name):
                assert change.kind == "joined"
                break
            assert await node.client(name).add(2, 3) == 5
        async with paris.subscription("orders.*") as orders:
            far.publish("orders.new", 7)
            order = await asyncio.wait_for(anext(orders), PATIENCE)
        assert (order.message, order.headers["tw-hubs"]) == (7, "harbour")
        assert {info.name for info in await paris.services()} == {"till", "harbour:bank"}
