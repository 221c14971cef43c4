"""Waiting for what the statistics of a node say, and for a subscription to be in force."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import tidewire as tw
from link_stories import PATIENCE_S, three


def links(services: dict[str, int], hub: str | None = "hub") -> Any:
    return lambda now: (now["links"]["hub"], now["links"]["services"]) == (hub, services)


@pytest.mark.promise("P10.4")
async def test_it_waits_for_a_link_that_is_lost_and_one_that_is_back() -> None:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        node = tw.Node(url, name="a")
        async with node:
            waiting = asyncio.ensure_future(node.until(links({}, None), PATIENCE_S))
            await asyncio.sleep(0)
            assert not waiting.done()
            await hub.stop()
            assert (await waiting)["links"]["hub"] is None
            waiting = asyncio.ensure_future(node.until(links({}, "next"), PATIENCE_S))
            async with tw.Node(name="next") as following:
                following.listen(url)
                await waiting


@pytest.mark.promise("P10.6")
async def test_it_ends_with_its_time_and_with_its_node() -> None:
    async with tw.Node() as node:
        assert (await node.until(lambda now: now["links"]["hub"] is None, 0))["links"]["services"] == {}
        with pytest.raises(TimeoutError, match=r"0\.01 s"):
            await node.until(lambda _: False, 0.01)
        waiting = asyncio.ensure_future(node.until(lambda _: False))
        given_up = asyncio.ensure_future(node.until(lambda _: False))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
    with pytest.raises(tw.NodeStopped, match="does not hold"):
        await waiting
    assert await node.until(lambda _: True)
    with pytest.raises(ValueError, match="no"):
        await node.until(lambda _: int("no"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((7,), "condition: 7"),
        ((bool, -1), "timeout: -1"),
        ((bool, True), "timeout: True"),
        ((bool, "1"), "timeout: '1'"),
    ],
)
async def test_a_wrong_condition_or_timeout_is_named(node: tw.Node, arguments: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=problem):
        await asyncio.to_thread(node.sync.until, *arguments)
    with pytest.raises(tw.InvalidArgument, match="await the same call"):
        node.sync.until(bool)


@pytest.mark.promise("P13.2")
async def test_a_subscription_that_was_awaited_is_in_force_at_the_hub() -> None:
    async with three() as (_, a, b):
        for number in range(50):
            came = asyncio.get_running_loop().create_future()

            async def receive(number: int, came: asyncio.Future[int] = came) -> None:
                came.set_result(number)

            subscription = b.subscribe(f"news.{number}", receive)
            assert await subscription is subscription
            a.publish(f"news.{number}", number)
            assert await came == number
            assert await subscription is subscription, "a second time it is there"
        async with b.subscription("read.*") as messages:
            a.publish("read.now", 1)
            assert (await messages.__anext__()).message == 1


@pytest.mark.promise("P13.3")
def test_without_a_hub_it_is_in_force_at_once(node: tw.Node) -> None:
    seen: list[int] = []
    subscription = node.subscribe("news", seen.append).wait()
    node.sync.request("news", 1)
    assert seen == [1]
    assert subscription.unsubscribe()
    assert subscription.wait() is subscription


@pytest.mark.promise("P13.3", "P13.4")
async def test_one_that_ends_while_it_is_awaited_waits_no_more() -> None:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="a") as node:
            await hub.stop()
            await node.until(links({}, None), PATIENCE_S)
            subscription = node.subscribe("news", print)

            async def in_force() -> None:
                await subscription

            waiting = asyncio.ensure_future(in_force())
            await asyncio.sleep(0)
            assert not waiting.done(), "it waits for the next hub"
            subscription.unsubscribe()
            with pytest.raises(asyncio.CancelledError):
                await waiting
