"""Streams, buckets and leases on a NATS server: the same classes as those of a folder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import nats_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server for the stories of this file."""
    with nats_server() as url:
        yield url


async def test_schedules_on_nats_are_those_of_a_folder(url: str) -> None:
    async with tw.Node(url) as node:
        ticks = await node.stream("ticks", subjects=["ticks.>"])
        pulse = await ticks.schedule("pulse", 1, "ticks.pulse", {"n": 1}, key="k", headers={"Z": "1", "a": "2"})
        for change in ("made", "kept"):
            nightly = await ticks.schedule("nightly", "0 22 * * mon-fri", "ticks.due", 1, time_zone="Europe/Berlin")
            assert nightly.change == change
        async for event in ticks.read(follow=True):
            assert (event.value, event.key, event.headers["a"]) == ({"n": 1}, "k", "2")
            assert event.headers["Tidewire-Schedule"] == "pulse"
            break
        assert [(one.name, one.value) for one in await ticks.schedules()] == [("nightly", 1), ("pulse", {"n": 1})]
        assert await pulse.cancel() and not await ticks.cancel_schedule("pulse")
        limited = await node.stream("limited", subjects=["limited.>"], max_messages=9, full="drop_old")
        with pytest.raises(tw.Unsupported, match="leave max_messages and max_bytes out"):
            await limited.schedule("a", "@daily", "limited.x", 1)


async def test_nodes_that_join_a_hub_on_nats_reach_its_streams(url: str) -> None:
    async with tw.Node(url, name="front") as hub:
        async with tw.Node(hub.listen("tide://127.0.0.1:0").url) as node:
            opened = await asyncio.gather(*(node.stream(f"front{n}", subjects=[f"front{n}.>"]) for n in range(10)))
            await asyncio.gather(*(opened[n % 10].publish(f"front{n % 10}.x", n) for n in range(50)))
            async with node.lease("front") as lease:
                assert lease.fence
                with pytest.raises(tw.LeaseHeld):
                    async with hub.lease("front", timeout=0):
                        pass
        seen = await hub.stream("front7")
        assert [event.value async for event in seen.read(stop=6)] == [7, 17, 27, 37, 47]


async def test_the_event_loop_goes_on_while_a_node_opens_its_streams(url: str) -> None:
    came, leaves = asyncio.Event(), asyncio.Event()
    real = url.removeprefix("nats://").split(":")
    connections = 0

    async def first_alone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            # Calls of other nodes have a connection of their own.
            of_server, to_server = await asyncio.open_connection(*real)
            await asyncio.gather(_pass_on(reader, to_server), _pass_on(of_server, writer))
            return
        came.set()
        await leaves.wait()
        writer.close()

    server = await asyncio.start_server(first_alone, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with tw.Node(f"nats://127.0.0.1:{port}?connect_timeout_ms=30000") as node:
        calls = [asyncio.create_task(node.streams()) for _ in range(3)]
        # The server is on this loop: it is there only while nothing blocks it.
        await asyncio.wait_for(came.wait(), 30)
        assert not any(call.done() for call in calls)
        calls[0].cancel()
        leaves.set()
        first, *others = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(first, asyncio.CancelledError)
        assert all(isinstance(other, tw.HomeUnavailable) for other in others), others
    server.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while came := await reader.read(65_536):
            writer.write(came)
            await writer.drain()
    writer.close()


async def test_wrong_arguments_are_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(tw.InvalidArgument, match="streams live in one place"):
        tw.Node(url, data=tmp_path)
    with pytest.raises(tw.InvalidArgument, match='name: "" is no name of a client'):
        async with tw.Node(f"{url}?name="):
            pass
    with pytest.raises(tw.LinkLost, match=r"can't be reached \("):
        async with tw.Node("nats://127.0.0.1:1"):
            pass


@pytest.mark.promise("P17.97")
async def test_many_replays_follow_one_stream_and_miss_nothing(url: str) -> None:
    async with tw.Node(url) as node:
        stream = await node.stream("followed", subjects=["followed.>"])

        async def follow() -> list[Any]:
            seen = []
            async for event in stream.read(follow=True):
                seen.append(event.value)
                if event.value == 299:
                    break
            return seen

        following = [asyncio.ensure_future(follow()) for _ in range(8)]
        for number in range(300):
            await stream.publish("followed.x", number)
        assert await asyncio.gather(*following) == [list(range(300))] * 8
