"""Publish, subscribe, request, schedule."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest
import tidewire as tw


@pytest.mark.promise("P6.16")
async def test_a_request_is_answered_by_one_of_those_subscribed(node: tw.Node) -> None:
    node.subscribe("pricing.quote", lambda symbol: f"{symbol}: 42", queue="pricing")
    node.subscribe("pricing.quote", lambda symbol: f"{symbol}: 42", queue="pricing")
    assert await node.request("pricing.quote", "X") == "X: 42"
    with pytest.raises(tw.NoResponders, match="nobody is subscribed to"):
        await node.request("pricing.none", "X")


@pytest.mark.promise("P6.13")
async def test_requests_go_to_the_subscribed_actors_in_turn(node: tw.Node) -> None:
    for name in "abc":
        node.subscribe("pricing.quote", lambda _, name=name: name)
    first = [await node.request("pricing.quote", "X") for _ in range(3)]
    assert sorted(first) == ["a", "b", "c"]
    assert [await node.request("pricing.quote", "X") for _ in range(6)] == first * 2


@pytest.mark.promise("P6.9")
async def test_a_member_of_a_queue_group_that_is_full_is_skipped(node: tw.Node) -> None:
    gate, took = asyncio.Event(), asyncio.Queue[str](10)

    async def hold(_: Any) -> None:
        await took.put("full")
        await gate.wait()

    full = node.spawn(hold, mailbox=tw.Mailbox(1, overflow="fail"))

    async def note(_: Any) -> None:
        await took.put("free")

    free = node.spawn(note)
    full.tell(0)
    assert await took.get() == "full"
    full.tell(0)
    node.subscribe("work", full, queue="workers")
    node.subscribe("work", free, queue="workers")
    for _ in range(4):
        assert node.publish("work", 1) == 1
    assert [await took.get() for _ in range(4)] == ["free"] * 4
    gate.set()


async def test_a_subscription_is_read_with_async_for(node: tw.Node) -> None:
    async with node.subscription("news.>") as stream:
        for n in range(5):
            node.publish(f"news.{n}", n)
        got = []
        async for envelope in stream:
            got.append((envelope.subject, envelope.message))
            if len(got) == 5:
                break
    assert got == [(f"news.{n}", n) for n in range(5)]
    assert node.publish("news.late", 1) == 0


@pytest.mark.promise("P6.15")
@pytest.mark.parametrize("end", ["its block", "its node"])
async def test_readers_of_a_subscription_see_its_end(end: str) -> None:
    async with tw.Node() as node:
        stream, seen = node.subscription("news.>"), []
        await stream.__aenter__()

        async def read() -> None:
            async for envelope in stream:
                seen.append(envelope.message)

        readers = [asyncio.create_task(read()) for _ in range(3)]
        for n in range(5):
            node.publish("news.of", n)
        while len(seen) < 5:
            await asyncio.sleep(0)
        # All of them wait for one more.
        if end == "its block":
            await stream.__aexit__(None, None, None)
    await asyncio.wait_for(asyncio.gather(*readers), 30)
    assert seen == [0, 1, 2, 3, 4]
    # Nobody who comes later waits either.
    assert [envelope async for envelope in stream] == []


@pytest.mark.promise("P6.14", "P6.16")
async def test_a_handler_that_reads_a_stream_is_not_asked(node: tw.Node) -> None:
    async with node.subscription(">") as everything, node.subscription("pricing.*", queue="pricing"):
        with pytest.raises(tw.NoResponders):
            await node.request("pricing.quote", "X")
        node.subscribe("pricing.quote", lambda symbol: f"{symbol}: 42", queue="pricing")
        assert [await node.request("pricing.quote", n) for n in range(9)] == [f"{n}: 42" for n in range(9)]
        # Nobody read them, and the first message is one that was published.
        node.publish("news", "read")
        assert (await anext(aiter(everything))).message == "read"


@pytest.mark.promise("P6.12")
def test_subscriptions_of_an_actor_are_set_and_ended(node: tw.Node) -> None:
    ref = node.spawn(lambda _: None)
    node.subscribe("a.*", ref)
    assert node.set_subscriptions(ref, ["b.>", "a.*"]) == ["a.*", "b.>"]
    assert node.unsubscribe(ref, "a.*") == ["b.>"]
    assert node.unsubscribe_all(ref) == 1
    assert node.subscriptions(ref) == []
    node.subscribe("c", ref)
    node.sync.stop(ref)
    assert node.publish("c", 1) == 0


@pytest.mark.promise("P9.4", "P9.5")
async def test_a_timer_says_how_it_ended(node: tw.Node) -> None:
    seen: list[str] = []
    ref = node.spawn(seen.append)
    assert await node.schedule(0.001, ref, "once").outcome() == "delivered"
    cancelled = node.schedule(60, ref, "never")
    assert cancelled.cancel() and not cancelled.cancel()
    assert await cancelled.outcome() == "cancelled"
    ticks = node.spawn(lambda _: beat.set())
    beat = threading.Event()
    every = node.schedule(0, ticks, "tick", every=0.001)
    for _ in range(3):
        assert await asyncio.to_thread(beat.wait, 30)
        beat.clear()
    every.cancel()
    await ref.stop()
    assert seen == ["once"]
    assert await node.schedule(0, ref, "late").outcome() == "no_target"
    assert node.statistics()["timers"] == 0


@pytest.mark.parametrize("way", ["node", "subscription"])
@pytest.mark.parametrize("place", ["alone", "hub"])
async def test_an_ended_subscription_leaves_nothing_in_memory(place: str, way: str) -> None:
    async with tw.Node() as node:
        if place == "hub":
            node.listen("tide://127.0.0.1:0")
        ref = node.spawn(lambda _: None)

        def live(rounds: int) -> int:
            for _ in range(rounds):
                subscription = node.subscribe("news", ref)
                if way == "node":
                    node.unsubscribe(ref, "news")
                else:
                    subscription.unsubscribe()
            del subscription
            gc.collect()
            return len(gc.get_objects())

        before = live(200)
        assert live(200) < before + 50


def test_a_node_with_subscriptions_is_collected() -> None:
    with tw.Node() as node:
        node.subscribe("news", lambda _: None)
    left = weakref.ref(node)
    del node
    gc.collect()
    assert left() is None
