"""Links: calls of idempotent methods are made again when their link was lost, others never."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import pytest
import tidewire as tw
from link_processes import Programs
from link_programs import until_served
from tidewire.services.registry import Registry


@pytest.mark.promise("P13.16")
@pytest.mark.parametrize("kind", ["awaited", "blocking"])
async def test_a_call_is_made_again_as_soon_as_the_link_is_back_and_not_at_the_end_of_a_wait(
    started: Programs, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def pause(registry: Registry, wait_s: float, seen: int) -> Any:
        return registry.node._engine.changed(registry.change_counter, seen, 50_000 * wait_s)

    monkeypatch.setattr(Registry, "pause", pause)
    hub, url = started.hub()
    server = started.server(url)
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop").with_(timeout=80_000.0)
        blocking = kind == "blocking"
        call = asyncio.to_thread(workshop.sync.steady, "server") if blocking else workshop.steady("server")
        steady = asyncio.ensure_future(call)
        await asyncio.to_thread(server.expect, "trying")
        hub.kill()
        await asyncio.to_thread(started.hub, url)
        assert await steady == "server 2"


@pytest.mark.promise("P13.16")
async def test_a_call_goes_to_another_instance_when_the_first_is_lost(started: Programs) -> None:
    _, url = started.hub()
    servers = {name: started.server(url, name) for name in ("one", "two")}
    async with tw.Node(url, name="caller") as node:
        await until_served(node, "workshop", 2)
        (service,) = await node.services()
        first, other = service.instances
        call = node.client("workshop").with_(policy="first").steady(first)
        call = asyncio.ensure_future(call)
        await asyncio.to_thread(servers[first].expect, "trying")
        servers[first].kill()
        assert await call == f"{other} 1"


async def test_nothing_is_made_again_where_that_is_turned_off(started: Programs) -> None:
    hub, url, server = started.hub_and_server()
    async with tw.Node(url, name="never", config={"links": {"link_resends": 0}}) as never:
        call = asyncio.ensure_future(never.client("workshop").steady("server"))
        await asyncio.to_thread(server.expect, "trying")
        since = perf_counter()
        hub.kill()
        with pytest.raises(tw.LinkLost):
            await call
        assert perf_counter() - since < 10


@pytest.mark.parametrize("sync", [False, True])
async def test_while_the_link_is_lost_a_call_goes_to_an_instance_of_its_own_process(
    started: Programs, sync: bool
) -> None:
    hub, url, _ = started.hub_and_server()
    async with tw.Node(url, name="caller") as node, tw.Node(url, name="other") as other:
        await other.serve({"where": lambda: "there"}, name="places", instance="there")
        await until_served(node, "places", 1)
        node.serve({"where": lambda: "here"}, name="places", instance="here")
        places = node.client("places").with_(policy="first")
        assert await places.where() == "there"
        hub.kill()
        await node.until(lambda now: now["links"]["hub"] is None, 30.0)
        for _ in range(5):
            assert await (asyncio.to_thread(places.sync.where) if sync else places.where()) == "here"
