"""The service of a hub through which nodes of other languages start commands and follow them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import PATIENCE
from tidewire.values import encode

WAIT_US = 4_000_000


class Sums(tw.Service):
    @tw.command(retries=0)
    async def add(self, left: int, right: int, progress: tw.Progress) -> int:
        progress(0.5, "half")
        return left + right


@asynccontextmanager
async def hub_and_client(folder: Path) -> AsyncIterator[tuple[tw.Node, tw.Node, Any]]:
    async with tw.Node(data=folder) as hub, tw.Node(hub.listen("tide://127.0.0.1:0").url, name="page") as node:
        yield hub, node, node.client("tidewire-commands")


async def test_a_command_is_started_and_followed_through_it_as_nodes_of_python_do_with_the_home(tmp_path: Path) -> None:
    async with hub_and_client(tmp_path) as (hub, node, client):
        run = await client.start("sums", "add", encode([[1], {"right": 2}]), "key", None, "high")
        info = await client.info(run)
        assert (info["stage"], info["caller"], info["key"], info["priority"]) == ("queued", "page", "key", "high")
        revision, is_over, record = await client.state(run, 0, 0)
        assert not is_over
        assert record["result"] is None
        assert await client.state(run, revision, 0) is None, "there is nothing newer"
        waiting = asyncio.ensure_future(client.state(run, revision, WAIT_US))
        await hub.serve(Sums())
        assert (await asyncio.wait_for(waiting, PATIENCE))[0] > revision
        assert [(fraction, note) async for fraction, note, _, _ in client.progress(run)][-1] == (0.5, "half")
        assert await node.command(run).result() == 3
        _, is_over, record = await client.state(run, 0, 0)
        assert is_over
        assert (record["stage"], record["result"]) == ("succeeded", encode(3))
        assert [info["id"] async for info in client.commands("sums", None, None)] == [run]
        assert not await client.cancel(run)
        assert not await client.retry(run)


async def test_errors_reach_the_caller_and_not_the_log_of_the_hub(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="tidewire")
    async with hub_and_client(tmp_path) as (_, _, client):
        for wrong in (b"\x01", encode([1, 2]), encode([[1], {}, 3])):
            with pytest.raises(tw.InvalidArgument, match="arguments: give a list"):
                await client.start("sums", "add", wrong, None, None, "normal")
        with pytest.raises(tw.InvalidArgument, match="command: "):
            await client.start("sums", "a.b", encode([[], {}]), None, None, "normal")
        await client.start("sums", "add", encode([[1], {}]), None, "one", "normal")
        with pytest.raises(tw.SettingsDiffer):
            await client.start("sums", "add", encode([[2], {}]), None, "one", "normal")
        with pytest.raises(tw.PayloadTooLarge):
            await client.start("sums", "add", encode([["x" * 600_000], {}]), None, None, "normal")
        assert [record.getMessage() for record in caplog.records] == []


async def test_waits_at_a_hub_that_stops_end_at_once(tmp_path: Path) -> None:
    async with hub_and_client(tmp_path) as (hub, _, client):
        run = await client.start("sums", "add", encode([[1, 2], {}]), None, None, "normal")
        revision, _, _ = await client.state(run, 0, 0)
        waiting = asyncio.ensure_future(client.state(run, revision, WAIT_US))
        # It waits at the hub by the time that this is answered.
        await client.info(run)
        stopping = asyncio.ensure_future(hub.stop())
        with pytest.raises(tw.HomeUnavailable):
            await asyncio.wait_for(waiting, 2.0)
        await stopping
