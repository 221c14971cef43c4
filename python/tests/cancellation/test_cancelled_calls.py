"""Cancellation of nodes, calls, actors, agents and pools at each of their waits: it arrives,
nothing is held, and the same call succeeds afterwards.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from cancel_support import PATIENCE, Story, cancel_each_wait
from home_support import nodes


@pytest.mark.promise("P17.102")
@pytest.mark.parametrize("kind", ["hub", "nats"])
async def test_a_node_whose_entry_was_cancelled_has_left(kind: str, tmp_path: Path) -> None:
    async def block(url: str, name: str) -> None:
        async with tw.Node(url, name=name, inspect=False) as node:
            await node.serve({"add": max}, name=name)
            assert await node.client(name).add(1, 2) == 2

    async def attempt(url: str, name: str) -> Story:
        yield block(url, name)
        # The name is free again at once.
        await block(url, name)

    async with nodes(kind, tmp_path) as (one, _):
        await cancel_each_wait(lambda name: attempt(one.url, name))


# Calls


class Shop(tw.Service):
    """Methods of each shape; ``open`` counts what is under way."""

    def __init__(self) -> None:
        self.open = 0

    @tw.method
    async def sell(self, number: int) -> int:
        self.open += 1
        try:
            await asyncio.sleep(0)
            return number
        finally:
            self.open -= 1

    @tw.method
    def plain(self, number: int) -> int:
        return number

    @tw.method
    async def count(self, to: int) -> AsyncIterator[int]:
        self.open += 1
        try:
            for number in range(to):
                await asyncio.sleep(0)
                yield number
        finally:
            self.open -= 1

    @tw.method
    async def total(self, numbers: AsyncIterator[int]) -> int:
        self.open += 1
        try:
            return sum([number async for number in numbers])
        finally:
            self.open -= 1


async def numbers() -> AsyncIterator[int]:
    for number in range(3):
        await asyncio.sleep(0)
        yield number


async def call(client: Any) -> None:
    assert await client.sell(1) == 1


async def plain_call(client: Any) -> None:
    assert await client.plain(1) == 1


async def stream_call(client: Any) -> None:
    assert [number async for number in client.count(4)] == [0, 1, 2, 3]


async def stream_block(client: Any) -> None:
    async with client.count(100) as items:
        assert await anext(items) == 0


async def stream_argument(client: Any) -> None:
    assert await client.total(numbers()) == 3


@pytest.mark.promise("P17.102")
@pytest.mark.parametrize("kind", ["local", "hub", "nats"])
@pytest.mark.parametrize(
    "work", [call, plain_call, stream_call, stream_block, stream_argument], ids=lambda one: one.__name__
)
async def test_a_call_can_be_cancelled_at_each_wait(kind: str, work: Callable[[Any], Any], tmp_path: Path) -> None:
    async def attempt(owner: tw.Node, shop: Shop, client: Any) -> Story:
        yield work(client)
        await work(client)
        await owner.idle(PATIENCE)
        assert shop.open == 0, "a handler goes on"

    async with nodes("folder" if kind == "local" else kind, tmp_path) as (one, other):
        shop = Shop()
        # A cancelled call that the loop has not begun or dropped yet waits, as the next one does.
        served = await one.serve(shop, concurrency=2, waiting=8, streams=2)
        client = other.client(Shop)
        await other.until(lambda now: now["links"]["services"].get("shop"), PATIENCE)
        await cancel_each_wait(lambda _: attempt(one, shop, client))
        assert (await served.stop()).balanced


async def serving(one: tw.Node, other: tw.Node, name: str) -> Story:
    served = one.serve(Shop(), name=name, instance=name)

    async def life() -> None:
        await served
        await served.stop()

    yield life()
    await served.stop()
    again = await one.serve(Shop(), name=name, instance=name)
    assert await one.client(Shop, name).sell(1) == 1
    await again.stop()


async def agent_request(one: tw.Node, other: tw.Node, name: str) -> Story:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    agent, desk = one.agent(double, id=name), one.agent(lambda payload: None, id=f"{name}-desk")

    async def life() -> None:
        assert await desk.request(2, to=name, timeout=PATIENCE) == 4
        await agent.stop()

    cancelled = yield life()
    if cancelled:
        await agent.stop()
    again = one.agent(double, id=name)
    assert await desk.request(2, to=name, timeout=PATIENCE) == 4
    await again.stop()
    await desk.stop()


async def actor_life(one: tw.Node, other: tw.Node, name: str) -> Story:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    ref = one.spawn(double, name=name, mailbox=1)

    async def life() -> None:
        assert await ref.ask(2, PATIENCE) == 4
        for number in range(3):
            await ref.send(number)
        await one.idle(PATIENCE)
        assert (await ref.stop()).balanced

    yield life()
    await ref.stop()
    again = one.spawn(double, name=name)
    assert await again.ask(2, PATIENCE) == 4
    await again.stop()


async def pool_life(one: tw.Node, other: tw.Node, name: str) -> Story:
    pools: list[tw.Pool[Any, Any]] = []

    async def life() -> None:
        async with tw.Pool(abs, 1, name=name) as pool:
            pools.append(pool)
            assert await pool.submit(-1) == 1
            assert [item async for item in pool.map([-1, -2])] == [1, 2]
            assert [item async for item in pool.map(numbers())] == [0, 1, 2]
            await pool.until(lambda now: now["in_workers"] == 0, PATIENCE)

    yield life()
    for pool in pools:
        assert (await pool.stop()).balanced
    await life()


async def pool_until(one: tw.Node, other: tw.Node, name: str) -> Story:
    going_on = threading.Event()

    async def is_idle() -> None:
        await pool.until(lambda now: not now["waiting"] and not now["in_workers"], PATIENCE)

    async with tw.Pool(going_on.wait, 1) as pool:
        task = pool.submit(PATIENCE)
        asyncio.get_running_loop().call_later(0.005, going_on.set)
        yield is_idle()
        assert await task
        await is_idle()


async def node_life(one: tw.Node, other: tw.Node, name: str) -> Story:
    found: list[tw.Node] = []

    async def life() -> None:
        async with tw.Node(name=name) as node:
            found.append(node)
            listener = node.listen("tide://127.0.0.1:0")
            async with tw.Node(listener.url, name=f"{name}-2") as joined:
                await joined.serve(Shop())
                assert await node.client(Shop).sell(1) == 1
            listener.close()

    yield life()
    for node in found:
        assert node.ledger is not None
        assert node.ledger.balanced
    await life()


@pytest.mark.parametrize(
    "case", [serving, agent_request, actor_life, pool_life, pool_until, node_life], ids=lambda case: case.__name__
)
@pytest.mark.parametrize("kind", ["folder", "hub"])
async def test_work_of_a_node_can_be_cancelled_at_each_wait(
    kind: str, case: Callable[..., Story], tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        await cancel_each_wait(lambda name: case(one, other, name))
