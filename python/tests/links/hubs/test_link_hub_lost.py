"""Links: what happens to nodes and their calls when their hub ends, and how they join the next
one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from time import perf_counter

import pytest
import tidewire as tw
from link_processes import PATIENCE_S, Programs
from link_programs import Workshop, until_served
from link_stories import SOON_S, fails, lost, said

KINDS = pytest.mark.parametrize("kind", ["tcp", "unix"])


ALONE = """
import contextlib, os, signal, sys, tidewire as tw, asyncio
signal.signal(signal.SIGPIPE, signal.SIG_DFL)

async def main():
    async with tw.Node(sys.argv[1], name="alone") as node:
        assert await node.client("workshop").echo(1) == 1
        print("ready", flush=True)
        # Nothing is read of the socket before this loop goes round again.
        sys.stdin.readline()
        for _ in range(3):
            # The first one may find the pipe broken, and the link is known to be lost then.
            with contextlib.suppress(tw.LinkLost):
                node.publish("nobody", bytes(300_000))
        await asyncio.sleep(0)
        print("alive", flush=True)

asyncio.run(main())
"""


@KINDS
def test_a_program_that_dies_of_broken_pipes_outlives_its_hub(started: Programs, kind: str) -> None:
    hub, url = started.hub(started.url(kind))
    started.server(url)
    alone = started.run("-c", ALONE, url)
    assert alone.line() == "ready"
    hub.kill()
    alone.tell("go")
    assert (alone.line(), alone.ended()) == ("alive", 0)


@pytest.mark.promise("P13.50")
@KINDS
async def test_a_hub_that_is_killed_fails_its_calls_and_nodes_join_the_next_one(started: Programs, kind: str) -> None:
    hub, url, server = started.hub_and_server(started.url(kind))
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop")
        calls = [asyncio.ensure_future(workshop.hold()) for _ in range(10)]
        for _ in calls:
            await said(server, "holding")
        hub.signal(signal.SIGKILL)
        for call in calls:
            await fails(call, tw.LinkLost)
        for _ in calls:
            await said(server, "cancelled")
        await fails(workshop.label(), tw.LinkLost)
        hub.ended()
        await asyncio.to_thread(started.hub, url)
        await until_served(node, "workshop")
        assert await workshop.label() == "server"
        # Earlier subscriptions are in force again: the node still hears of services that come
        # and go.
        await asyncio.to_thread(started.server, url, "late")
        await until_served(node, "workshop", 2)
        await asyncio.to_thread(server.end)
        await until_served(node, "workshop", 1)
        assert await workshop.label() == "late"


@pytest.mark.promise("P13.3")
async def test_a_service_of_a_node_without_hub_is_served_at_the_next_hub(started: Programs) -> None:
    hub, url = started.hub()
    async with tw.Node(url, name="maker") as maker, tw.Node(url, name="caller") as node:
        hub.kill()
        await lost(maker)
        await lost(node)
        serving = maker.serve(Workshop("made"), name="workshop")
        await asyncio.to_thread(started.hub, url)
        await asyncio.wait_for(serving, 30)
        await until_served(node, "workshop")
        assert await node.client("workshop").label() == "made"


async def test_waits_for_a_hub_that_never_comes_back_end_with_their_node(started: Programs) -> None:
    hub, url = started.hub()
    async with tw.Node(url, name="maker") as maker:
        hub.kill()
        await lost(maker)
        serving = asyncio.ensure_future(maker.serve(Workshop("made"), name="workshop"))
        since = perf_counter()
        ledger = await maker.stop(10)
        assert perf_counter() - since < SOON_S and ledger.balanced
        await fails(serving, tw.LinkLost)


async def test_a_handler_of_a_link_that_was_lost_does_not_touch_the_calls_of_the_next_one(started: Programs) -> None:
    hub, url, server = started.hub_and_server()
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop")
        lingering = asyncio.ensure_future(workshop.linger())
        await said(server, "lingering")
        hub.kill()
        await fails(lingering, tw.LinkLost)
        await asyncio.to_thread(started.hub, url)
        await until_served(node, "workshop")
        call = asyncio.ensure_future(workshop.hold())
        await said(server, "holding")
        # The old handler ends; its call had the id that this one has now.
        server.signal(signal.SIGUSR2)
        await said(server, "over")
        for _ in range(3):
            assert await workshop.label() == "server"
        call.cancel()
        await said(server, "cancelled")


async def test_a_request_while_the_hub_is_gone_says_so_with_the_fix(started: Programs) -> None:
    hub, url = started.hub()
    async with tw.Node(url, name="caller") as node:
        assert repr(node).startswith(f"<Node 'caller' {url} running, ")
        unknown = node.client("unknown")
        with pytest.raises(tw.NoResponders, match="no service is known here: look whether"):
            await unknown.work()
        hub.kill()
        await lost(node)
        assert "running, link lost" in repr(node)
        told = r"unknown: nobody is known to serve it, and the link of 'caller' to the hub at tide://.* is lost: call again"
        with pytest.raises(tw.LinkLost, match=told):
            await unknown.work()
        with pytest.raises(tw.LinkLost, match=told):
            await asyncio.to_thread(unknown.sync.work)
        with pytest.raises(tw.LinkLost, match=told):
            await anext(aiter(unknown.work()))
        with pytest.raises(tw.LinkLost, match="try again once it is back"):
            await node.request("a.b", None, timeout=5)


async def test_a_hub_that_hangs_does_not_keep_a_call_longer_than_its_own_time(started: Programs) -> None:
    hub, url = started.hub()
    # Else the link would be given up first.
    patient = {"links": {"link_heartbeat_ms": 60_000}}
    async with tw.Node(url, name="caller", config=patient) as node:
        hub.signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, hub.process.pid, os.WSTOPPED | os.WNOWAIT)
        since = perf_counter()
        with pytest.raises(
            tw.AskTimeout, match=r"unknown: nobody is known to serve it, and the hub at tide://.* did not say"
        ):
            await node.client("unknown").with_(timeout=0.2).work()
        assert perf_counter() - since < SOON_S, "it waited for the hub"
        hub.signal(signal.SIGCONT)


def test_a_hub_shows_where_it_can_be_joined() -> None:
    with tw.Node(name="hub") as node:
        assert "<Node 'hub' mem:// running, " in repr(node)
        first, second = node.listen("tide://127.0.0.1:0"), node.listen("tide://127.0.0.1:0")
        assert f"<Node 'hub' {first.url} {second.url} running, " in repr(node)
        first.close()
        assert f"<Node 'hub' {second.url} running, " in repr(node)


def test_a_node_that_tries_to_join_again_stops_at_once(started: Programs) -> None:
    """The listener in the place of the hub takes connections, and says nothing."""
    hub, url = started.hub("ws://127.0.0.1:0")
    place = ("127.0.0.1", int(url.rsplit(":", 1)[1].strip("/")))
    with socket.socket() as silent:
        with tw.Node(url, name="caller", config={"links": {"link_greeting_ms": 60_000}}):
            hub.kill()
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            silent.bind(place)
            silent.listen()
            silent.settimeout(PATIENCE_S)
            connection, _ = silent.accept()
            connection.settimeout(PATIENCE_S)
            assert connection.recv(4) == b"GET "
        with connection:
            while connection.recv(4_096):
                pass
