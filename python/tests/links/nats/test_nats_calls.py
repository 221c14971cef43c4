"""Nodes of a cluster over NATS: calls, streams of items, what is given, agents, and what becomes of
them when something is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
import tidewire as tw
from link_processes import PATIENCE_S, PROGRAMS, Program
from link_programs import CREDIT, Workshop, until_served
from link_stories import fails, said
from server_keeper import Keeper


@contextlib.contextmanager
def workshop(url: str, name: str = "far", instance: str = "one", **env: str) -> Iterator[Program]:
    program = Program(PROGRAMS, "serve", url, name, "workshop", instance, env=env)
    try:
        program.expect("ready")
        yield program
    finally:
        program.kill()


async def test_processes_call_each_other_as_at_a_hub(nats_url: str) -> None:
    with workshop(nats_url) as program:
        async with tw.Node(nats_url, name="near") as node:
            # Earlier nodes are known at once.
            assert [info.name for info in await node.nodes()] == ["far", "near"]
            (info,) = await node.services()
            assert info.name == "workshop" and "echo" in [method.name for method in info.methods]
            client = node.client(Workshop)
            assert await client.echo({"a": [1, None]}) == {"a": [1, None]}
            assert await node.client("workshop").plain(1) == 2
            assert await asyncio.gather(*(client.echo(number) for number in range(200))) == list(range(200))
            node_name, user, _ = await client.caller()
            assert (node_name, user) == ("near", None)
            with pytest.raises(KeyError):
                await client.fail("key")
            with pytest.raises(tw.NoReply):
                await client.fail("tide")
            with pytest.raises(tw.AskTimeout):
                await client.with_(timeout=0.2).hold()
            await said(program, "cancelled")
            with pytest.raises(tw.NoResponders):
                await node.request("nobody.there", 1, timeout=PATIENCE_S)


async def test_long_values_are_sent_in_parts_and_arrive_whole(nats_url: str) -> None:
    with workshop(nats_url):
        async with tw.Node(nats_url, name="near") as node:
            client, sent = node.client(Workshop), bytes(range(256)) * 80_000
            echoed, small = await asyncio.gather(client.echo(sent), client.echo(1))
            assert echoed == sent and small == 1


async def test_a_slow_reader_holds_the_writer_back(nats_url: str) -> None:
    with workshop(nats_url) as program:
        async with tw.Node(nats_url, name="near") as node:
            client = node.client(Workshop)
            async with contextlib.aclosing(client.count(1_000_000)) as items:
                assert await anext(items) == 0
                await said(program, "ahead")
                assert await client.ahead() <= 2 * CREDIT
                assert [await anext(items) for _ in range(CREDIT)] == list(range(1, CREDIT + 1))
            await said(program, "closed")
            total = 0
            async for block in client.blocks(100, 200_000):
                total += len(block)
            assert total == 20_000_000


async def test_functions_that_are_given_are_called_in_the_other_process(nats_url: str) -> None:
    with workshop(nats_url) as program:
        async with tw.Node(nats_url, name="near") as node:
            client = node.client(Workshop)

            async def here() -> str:
                return "here"

            await client.keep(here)
            assert await client.call_kept() == "here"
            program.kill()
            await node.until(lambda now: now["remote"]["given"] == 0, PATIENCE_S)


async def test_calls_to_a_process_that_is_killed_fail_soon_and_go_elsewhere(nats_url: str) -> None:
    with workshop(nats_url, "far", "one") as first:
        async with tw.Node(nats_url, name="near") as node:
            call = asyncio.ensure_future(node.client(Workshop).hold())
            await said(first, "holding")
            with workshop(nats_url, "other", "two") as second:
                await until_served(node, "workshop", 2)
                tried = asyncio.ensure_future(node.client(Workshop).steady("far"))
                trying = asyncio.ensure_future(node.client(Workshop).steady("far"))
                await asyncio.gather(said(second, "trying"), said(first, "trying"))
                first.kill()
                await fails(call, tw.LinkLost)
                # A call that may run twice does.
                assert {(await tried).split()[0], (await trying).split()[0]} == {"other"}
                await until_served(node, "workshop", 1)


async def test_a_process_that_is_killed_can_be_started_again_at_once(nats_url: str) -> None:
    async with tw.Node(nats_url, name="near") as node:
        for instance in ("one", "two", "three"):
            with workshop(nats_url, "far", instance):
                await asyncio.wait_for(_instances(node, [instance]), PATIENCE_S)
                assert await node.client(Workshop).label() == "far"


async def test_a_process_that_stands_still_is_gone_after_two_heartbeats(nats_url: str) -> None:
    config = {"links": {"link_heartbeat_ms": 500}}
    async with tw.Node(nats_url, name="near", config=config) as node:
        async with tw.Node(nats_url, name="other", config=config) as other:
            await other.serve(Workshop())
            await until_served(node, "workshop")
        await until_served(node, "workshop", 0)
        with workshop(nats_url, TIDEWIRE_LINKS__LINK_HEARTBEAT_MS="500") as program:
            await until_served(node, "workshop")
            call = asyncio.ensure_future(node.client(Workshop).hold())
            await said(program, "holding")
            program.signal(signal.SIGSTOP)
            await fails(call, tw.LinkLost, PATIENCE_S)
            program.signal(signal.SIGCONT)
            await said(program, "cancelled")
            await until_served(node, "workshop")
            assert await node.client(Workshop).echo(1) == 1


async def test_calls_fail_with_the_server_and_go_on_with_the_next_one() -> None:
    with Keeper("nats") as server, workshop(server.url) as program:
        async with tw.Node(server.url, name="near") as node:
            call = asyncio.ensure_future(node.client(Workshop).hold())
            await said(program, "holding")
            await server.tell("kill")
            await fails(call, tw.LinkLost)
            await said(program, "cancelled")
            await node.until(lambda now: now["links"]["services"].get("workshop", 0) == 0, PATIENCE_S)
            await server.tell("start")
            await until_served(node, "workshop")
            assert await node.client(Workshop).with_(timeout=PATIENCE_S).echo(2) == 2


@pytest.mark.promise("P17.106")
async def test_calls_say_that_the_connection_is_lost_until_all_nodes_are_met_again() -> None:
    with Keeper("nats") as server:
        async with tw.Node(server.url, name="near") as near, tw.Node(server.url, name="far") as far:
            await far.subscribe("lobby.ask", lambda message: message)
            await far.serve(Workshop())
            await until_served(near, "workshop")
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: near.request("lobby.ask", 1),
                lambda: near.client(Workshop).echo(1),
                lambda: near.client("workshop").echo(1),
            ]
            errors: list[list[tw.TidewireError]] = [[] for _ in calls]
            is_lost = [asyncio.Event() for _ in calls]

            async def keep_calling(at: int) -> Any:
                """Call until a call succeeds after the loss, and note the errors."""
                while True:
                    try:
                        answer = await calls[at]()
                    except tw.TidewireError as error:
                        errors[at].append(error)
                        is_lost[at].set()
                    else:
                        if errors[at]:
                            return answer
                    await asyncio.sleep(0.001)

            calling = [asyncio.ensure_future(keep_calling(at)) for at in range(len(calls))]
            await server.tell("kill")
            await asyncio.wait_for(asyncio.gather(*(one.wait() for one in is_lost)), PATIENCE_S)
            await server.tell("start")
            assert await asyncio.wait_for(asyncio.gather(*calling), PATIENCE_S) == [1] * len(calls)
            kinds = [{(type(error), error.retryable) for error in found} for found in errors]
            assert kinds == [{(tw.LinkLost, True)}] * len(calls), errors


async def test_a_name_is_that_of_one_node(nats_url: str) -> None:
    async with tw.Node(nats_url, name="near") as node:
        with pytest.raises(tw.NameTaken, match=r'"near".*choose another name'):
            async with tw.Node(nats_url, name="near"):
                pass
        assert [info.name for info in await node.nodes()] == ["near"]


async def test_agents_are_found_and_asked_wherever_they_live(nats_url: str) -> None:
    async with tw.Node(nats_url, name="a") as a, tw.Node(nats_url, name="b") as b:
        a.agent(lambda number: number + 1, id="adder", capabilities=["adding"])
        await b.until(lambda _: bool(b.agents.list(capability="adding")), PATIENCE_S)
        desk = b.agent(lambda payload: None, id="desk")
        assert await desk.request(1, "adder", timeout=PATIENCE_S) == 2
        with pytest.raises(tw.NameTaken):
            await b.agent(lambda number: number, id="adder")


async def test_published_messages_come_once_and_in_order_to_all_subscribers(nats_url: str) -> None:
    async with tw.Node(nats_url, name="a") as a:
        # A node that gets an answer from `a` is known to `a`, with all its subscriptions.
        await a.subscribe("sync", a.spawn(lambda _: True))
        async with tw.Node(nats_url, name="b") as b, tw.Node(nats_url, name="c") as c:
            heard: list[list[Any]] = [[], [], [], []]
            loop = asyncio.get_running_loop()
            done = [asyncio.Event() for _ in heard]

            def hearer(at: int) -> Any:
                def hear(number: Any) -> None:
                    heard[at].append(number)
                    if number == "end":
                        loop.call_soon_threadsafe(done[at].set)

                return hear

            # Two patterns of one node that both match are one way to it.
            await b.subscribe("ticks.*", b.spawn(hearer(0)))
            await b.subscribe("ticks.>", b.spawn(hearer(1)))
            for at, node in ((2, b), (3, c)):
                actor = node.spawn(hearer(at))
                await node.subscribe("ticks.eu", actor, queue="one")
                await node.subscribe("over", actor)
            for node in (b, c):
                assert await node.request("sync", None, timeout=PATIENCE_S)
            numbers = list(range(2_000))
            for number in numbers:
                a.publish("ticks.eu", number)
            a.publish("ticks.us", "end")
            a.publish("over", "end")
            for event in done:
                await asyncio.wait_for(event.wait(), PATIENCE_S)
            assert heard[0] == heard[1] == [*numbers, "end"]
            of_group = [[number for number in one if number != "end"] for one in heard[2:]]
            assert sorted(of_group[0] + of_group[1]) == numbers, "one member of the group has each"
            assert all(one and one == sorted(one) for one in of_group), "each member has some, in order"


async def test_requests_find_their_responders_and_long_messages_come_whole(nats_url: str) -> None:
    async with tw.Node(nats_url, name="a") as a:
        longest, came = bytes(range(256)) * 20_000, asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear(message: bytes) -> int:
            if message == longest:
                loop.call_soon_threadsafe(came.set)
            return len(message)

        await a.subscribe("blobs", a.spawn(hear))
        async with tw.Node(nats_url, name="b") as b:
            assert await b.request("blobs", b"123", timeout=PATIENCE_S) == 3
            assert await b.request("blobs", longest, timeout=PATIENCE_S) == len(longest)
            came.clear()
            b.publish("blobs", longest)
            await asyncio.wait_for(came.wait(), PATIENCE_S)


async def test_errors_at_the_start_are_named(tmp_path: Path) -> None:
    with pytest.raises(tw.LinkLost, match=r"NATS at 127.0.0.1:1: can't be reached"):
        async with tw.Node("nats://127.0.0.1:1"):
            pass
    config = tmp_path / "users.conf"
    config.write_text(
        'authorization { users = [{user: all, password: p}, {user: some, password: p, permissions: {publish: ["orders.>", "$JS.>"]}}] }'
    )
    with Keeper("nats", "--nats-config", str(config)) as server:
        place = server.url.removeprefix("nats://").rpartition("@")[2]
        with pytest.raises(tw.Unauthorized, match="check user and password"):
            async with tw.Node(f"nats://all:wrong@{place}"):
                pass
        with pytest.raises(tw.Unauthorized, match=r"let this user publish and subscribe on tw\.>"):
            async with tw.Node(f"nats://some:p@{place}"):
                pass
        async with tw.Node(f"nats://all:p@{place}", name="in") as node:
            assert [info.name for info in await node.nodes()] == ["in"]
    config.write_text("max_payload: 32768")
    with (
        Keeper("nats", "--nats-config", str(config)) as server,
        pytest.raises(tw.InvalidArgument, match=r"max_payload=32768 of the server is too small: give it \d+ bytes"),
    ):
        async with tw.Node(server.url):
            pass


async def test_an_idle_cluster_sends_few_messages_and_all_nodes_notice_a_loss(nats_url: str) -> None:
    config = {"links": {"link_heartbeat_ms": 500}}
    with (
        workshop(nats_url, "killed", "one", TIDEWIRE_LINKS__LINK_HEARTBEAT_MS="500") as killed,
        workshop(nats_url, "frozen", "two", TIDEWIRE_LINKS__LINK_HEARTBEAT_MS="500") as frozen,
    ):
        async with contextlib.AsyncExitStack() as stack:
            nodes = []
            for number in range(10):
                nodes.append(await stack.enter_async_context(tw.Node(nats_url, name=f"n{number}", config=config)))
            for node in nodes:
                await until_served(node, "workshop", 2)
            plain = await nats.connect(nats_url)
            beats, others, done = 0, 0, asyncio.Event()

            async def count(message: Any) -> None:
                nonlocal beats, others
                is_beat = message.subject == "tw.presence" and b'"n0"' in message.data
                beats, others = beats + is_beat, others + (0 < beats < 5)
                if beats == 5:
                    done.set()

            await plain.subscribe("tw.>", cb=count)
            await asyncio.wait_for(done.wait(), PATIENCE_S)
            await plain.close()
            # A beat of each pair would make more than 1,000 messages of these 8 beats.
            assert others < 500, others
            killed.kill()
            frozen.signal(signal.SIGSTOP)
            for node in nodes:
                await until_served(node, "workshop", 0)
            frozen.signal(signal.SIGCONT)
            for node in nodes:
                await until_served(node, "workshop", 1)


async def test_of_two_nodes_with_one_name_all_reach_the_one_that_joined_first(
    nats_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "tidewire")
    config = {"links": {"link_heartbeat_ms": 500}}
    with workshop(nats_url, TIDEWIRE_LINKS__LINK_HEARTBEAT_MS="500") as first:
        async with tw.Node(nats_url, name="near", config=config) as node:
            first.signal(signal.SIGSTOP)
            await until_served(node, "workshop", 0)
            async with tw.Node(nats_url, name="far", config=config) as second:
                await second.serve(Workshop(), name="other")
                await until_served(node, "other", 1)
                first.signal(signal.SIGCONT)
                await until_served(node, "other", 0)
                await until_served(node, "workshop", 1)
                assert await node.client(Workshop).label() == "far"
                while not any("joined before: until it is gone" in line.getMessage() for line in caplog.records):
                    await asyncio.sleep(0.01)
                with pytest.raises(tw.TidewireError):
                    await second.client(Workshop).with_(timeout=1).label()
                first.kill()
                await until_served(node, "other", 1)


async def _instances(node: tw.Node, wanted: list[str]) -> None:
    """Wait until these are the instances that a node knows."""
    async for _ in node.watch_services():
        if [instance for info in await node.services() for instance in info.instances] == wanted:
            return
