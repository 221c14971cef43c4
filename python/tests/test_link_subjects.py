"""What is published and asked on subjects reaches other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import tidewire as tw

TIMEOUT_S = 30


@asynccontextmanager
async def three() -> AsyncIterator[tuple[tw.Node, tw.Node, tw.Node]]:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="a") as a, tw.Node(url, name="b") as b:
            yield hub, a, b


def run(story: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))


async def in_force(node: tw.Node) -> None:
    """Wait until the hub knows what a node has subscribed to: a call of the hub comes behind it."""
    await node._link().refresh()


async def until(true: Callable[[], object]) -> None:
    """Wait until something has come around that nobody here is told of."""
    while not true():
        await asyncio.sleep(0.001)


def test_a_message_reaches_every_node_once_and_keeps_its_subject_and_headers() -> None:
    async def story() -> None:
        async with three() as (hub, a, b):
            came: asyncio.Queue[tuple[str, Any, str, Any]] = asyncio.Queue()
            for name, node in (("hub", hub), ("a", a), ("b", b)):

                async def receive(message: Any, ctx: tw.Context, name: str = name) -> None:
                    await came.put((name, message, ctx.subject or "", ctx.headers))

                node.subscribe("orders.*", receive)
                # Two patterns of one node that match are two subscriptions.
                node.subscribe("other.>", receive)
                await in_force(node)
            assert a.publish("orders.created", {"id": 7}, headers={"h": "v"}) == 1
            seen = sorted([await came.get() for _ in range(3)], key=lambda one: one[0])
            assert [one[0] for one in seen] == ["a", "b", "hub"]
            assert all(one[1:] == ({"id": 7}, "orders.created", {"h": "v"}) for one in seen)
            assert came.empty()

    run(story)


def test_a_queue_group_gets_each_message_once() -> None:
    async def story() -> None:
        async with three() as (hub, a, b):
            counts, all_came = {"a": 0, "b": 0}, asyncio.Event()
            for name, node in (("a", a), ("b", b)):

                async def receive(message: int, name: str = name) -> None:
                    counts[name] += 1
                    if sum(counts.values()) == 200:
                        all_came.set()

                node.subscribe("work", receive, queue="workers")
                await in_force(node)
            for number in range(100):
                hub.publish("work", number)
            # A member at the publishing node gets all of its own.
            before = dict(counts)
            for number in range(100):
                a.publish("work", number)
            await all_came.wait()
            assert counts["a"] >= before["a"] + 100
            assert counts["b"] > 0
            assert sum(counts.values()) == 200

    run(story)


def test_a_burst_waits_for_room_and_keeps_its_order() -> None:
    async def story() -> None:
        async with three() as (_, a, b):
            seen: list[int] = []
            done = asyncio.Event()

            async def receive(number: int) -> None:
                seen.append(number)
                if number == 29_999:
                    done.set()

            b.subscribe("burst", b.spawn(receive, mailbox=100))
            await in_force(b)
            for number in range(30_000):
                a.publish("burst", number)
            await done.wait()
            assert seen == list(range(30_000))
            assert not b.dead_letters.list()

    run(story)


def test_a_full_mailbox_that_lets_nobody_wait_makes_dead_letters() -> None:
    async def story() -> None:
        async with three() as (_, a, b):
            door = asyncio.Event()

            async def receive(_: int) -> None:
                await door.wait()

            actor = b.spawn(receive, mailbox=tw.Mailbox(1, "fail"), name="narrow")
            b.subscribe("flood", actor)
            await in_force(b)
            for number in range(10):
                a.publish("flood", number)
            await until(lambda: len(b.dead_letters.list(name="narrow")) >= 8)
            letters = b.dead_letters.list(name="narrow")
            assert [letter.reason for letter in letters] == ["mailbox_full"] * len(letters)
            assert len(letters) in (8, 9)
            door.set()

    run(story)


def test_a_request_is_answered_by_another_node_with_its_value_or_its_error() -> None:
    async def story() -> None:
        async with three() as (hub, a, b):
            b.subscribe("half", lambda number: 1 / number)
            await in_force(b)
            assert await a.request("half", 4) == 0.25
            assert await hub.request("half", 2) == 0.5
            with pytest.raises(ZeroDivisionError):
                await a.request("half", 0)
            with pytest.raises(tw.NoResponders, match="nobody answers"):
                await a.request("nobody", 0)
            b.subscribe("slow", b.spawn(lambda _: __import__("time").sleep(0.5)))
            await in_force(b)
            with pytest.raises(tw.AskTimeout):
                await a.request("slow", 0, timeout=0.02)

    run(story)


def test_a_subscription_that_ends_gets_nothing_more_and_stopped_actors_are_forgotten() -> None:
    async def story() -> None:
        async with three() as (hub, a, b):
            seen: list[int] = []
            subscription = b.subscribe("news", seen.append)
            actor = b.spawn(seen.append)
            b.subscribe("news", actor)
            await in_force(b)
            subscription.unsubscribe()
            await actor.stop()
            # The hub is told of a stopped actor when something comes for it.
            while True:
                try:
                    await a.request("news", 1)
                except tw.NoResponders:
                    break
                except tw.ActorStopped:
                    continue
            a.publish("news", 2)
            b.subscribe("last", seen.append)
            await in_force(b)
            a.publish("last", 3)
            await until(lambda: seen)
            assert seen == [3]
            assert hub._link().hub is not None

    run(story)


def test_what_can_not_be_sent_reaches_nobody() -> None:
    async def story() -> None:
        async with three() as (_, a, _b):
            seen: list[Any] = []
            a.subscribe("local", seen.append)
            with pytest.raises(tw.InvalidArgument, match="message"):
                a.publish("local", lambda: None)
            with pytest.raises(tw.InvalidSubject):
                a.publish("not..one", 1)
            assert await a.request("local", "x") is None
            assert seen == ["x"]

    run(story)
