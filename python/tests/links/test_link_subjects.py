"""Publications and requests on subjects reach other nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
from typing import Any

import pytest
import tidewire as tw
from link_processes import PATIENCE_S, Programs
from link_stories import logged, three
from tidewire.testing import Recorder


@pytest.mark.promise("P13.5")
async def test_a_message_reaches_every_node_once_and_keeps_its_subject_and_headers() -> None:
    async with three() as nodes, contextlib.AsyncExitStack() as stack:
        # Two patterns of one node that match are two subscriptions.
        patterns = ("orders.*", "orders.>", "other.>")
        enter = stack.enter_async_context
        heard = [await enter(Recorder(node, pattern)) for pattern in patterns for node in nodes]
        assert nodes[1].publish("orders.created", {"id": 7}, headers={"h": "v"}) == 2
        nodes[1].publish("orders.end", None)
        for recorder in heard[:6]:
            first, _ = await recorder.next(2)
            assert (first.subject, first.message, first.headers) == ("orders.created", {"id": 7}, {"h": "v"})
            assert len(recorder.seen) == 2
        assert not any(recorder.seen for recorder in heard[6:])


@pytest.mark.promise("P13.7", "P13.8")
async def test_a_queue_group_gets_each_message_once() -> None:
    async with three() as (hub, a, b):
        counts, all_came = {"a": 0, "b": 0}, asyncio.Event()
        for name, node in (("a", a), ("b", b)):

            async def receive(message: int, name: str = name) -> None:
                counts[name] += 1
                if sum(counts.values()) == 200:
                    all_came.set()

            await node.subscribe("work", receive, queue="workers")
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


def test_a_hub_says_at_its_end_how_many_messages_it_dropped(started: Programs) -> None:
    # The hub would wait for the hearer that stands still.
    hub, url = started.hub("tide://127.0.0.1:0", "--set", "links.link_queue_bytes=1048576", "--timeout", "0.2")
    hearer = started.hearer(url)
    hearer.halt()
    with tw.Node(url, name="sender") as sender:
        for _ in range(100_000):
            sender.publish("burst", "x" * 100)
        # This one is behind all of them: they have come to the hub.
        with pytest.raises(tw.NoResponders):
            sender.sync.request("nobody", None)
    hub.signal(signal.SIGTERM)
    assert json.loads(hub.line())["dropped"] > 0
    assert hub.ended() == 0


@pytest.mark.promise("P13.6")
async def test_a_burst_waits_for_capacity_and_keeps_its_order() -> None:
    async with three() as (_, a, b):
        seen: list[int] = []
        done = asyncio.Event()

        async def receive(number: int) -> None:
            seen.append(number)
            if number == 29_999:
                done.set()

        await b.subscribe("burst", b.spawn(receive, mailbox=100))
        for number in range(30_000):
            a.publish("burst", number)
        await done.wait()
        assert seen == list(range(30_000))
        assert not b.dead_letters.list()


async def test_a_full_mailbox_that_lets_nobody_wait_makes_dead_letters() -> None:
    async with three() as (_, a, b):
        door = asyncio.Event()

        async def receive(_: int) -> None:
            await door.wait()

        actor = b.spawn(receive, mailbox=tw.Mailbox(1, "fail"), name="narrow")
        await b.subscribe("flood", actor)
        for number in range(10):
            a.publish("flood", number)
        await b.until(lambda now: now["dead_letters"].get("mailbox_full", 0) >= 8, PATIENCE_S)
        letters = b.dead_letters.list(name="narrow")
        assert [letter.reason for letter in letters] == ["mailbox_full"] * len(letters)
        assert len(letters) in (8, 9)
        door.set()


async def test_a_request_is_answered_by_another_node_with_its_value_or_its_error() -> None:
    async with three() as (hub, a, b):
        await b.subscribe("half", lambda number: 1 / number)
        assert await a.request("half", 4) == 0.25
        assert await hub.request("half", 2) == 0.5
        with pytest.raises(ZeroDivisionError):
            await a.request("half", 0)
        with pytest.raises(tw.NoResponders, match="nobody answers"):
            await a.request("nobody", 0)

        over = asyncio.Event()

        async def slow(_: object) -> None:
            await over.wait()

        await b.subscribe("slow", slow)
        with pytest.raises(tw.AskTimeout):
            await a.request("slow", 0, timeout=0.02)
        over.set()


async def test_a_subscription_that_ends_gets_nothing_more_and_stopped_actors_are_forgotten() -> None:
    async with three() as (_, a, b):
        seen: asyncio.Queue[int] = asyncio.Queue(1_000)

        async def receive(number: int) -> None:
            await seen.put(number)

        subscription = await b.subscribe("news", receive)
        actor = b.spawn(receive)
        await b.subscribe("news", actor)
        subscription.unsubscribe()
        await actor.stop()
        # A later message on the link of this node shows that its end has come.
        await b.subscribe("other", receive)
        # The hub is told of a stopped actor when something comes for it.
        with pytest.raises(tw.ActorStopped):
            await a.request("news", 1)
        with pytest.raises(tw.NoResponders):
            await a.request("news", 1)
        a.publish("news", 2)
        await b.subscribe("last", receive)
        a.publish("last", 3)
        assert await seen.get() == 3
        assert seen.empty()


@pytest.mark.promise("P13.9")
async def test_a_value_that_cannot_be_sent_reaches_nobody() -> None:
    async with three() as (_, a, _b):
        seen: list[Any] = []
        a.subscribe("local", seen.append)
        with pytest.raises(tw.InvalidArgument, match="message"):
            a.publish("local", lambda: None)
        with pytest.raises(tw.InvalidSubject):
            a.publish("not..one", 1)
        assert await a.request("local", "x") is None
        assert seen == ["x"]


async def test_the_first_of_much_is_written_while_the_round_of_the_loop_goes_on() -> None:
    # A heartbeat writes what waits, too.
    late = {"links": {"link_heartbeat_ms": 600_000}}
    async with tw.Node(name="hub", config=late) as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="other"), tw.Node(url, name="sender", config=late) as sender:
            came = threading.Event()
            await hub.subscribe("news", lambda _: came.set())
            for _ in range(20):
                sender.publish("news", bytes(20_480))
            # This blocks the loop of all nodes.
            assert came.wait(PATIENCE_S)


async def test_a_publish_to_a_service_is_logged_once_without_a_traceback() -> None:
    async with three() as (_, a, b):
        served = await a.serve({"double": double}, name="desk")
        await b.until(lambda now: "desk" in now["links"]["services"], timeout=PATIENCE_S)
        with logged() as lines:
            for _ in range(3):
                b.publish(f"svc.desk.{served.instance}.double", 1)
                b.publish("svc.desk.double", 1)
            # Behind the messages: they have come in.
            assert await b.client("desk").double(4) == 8
            said = lines.get(timeout=PATIENCE_S)
            assert "the node 'b' publishes to a service" in said and said.startswith("svc.desk.")
            assert lines.empty()


async def double(value: int) -> int:
    return 2 * value


async def test_the_context_of_an_event_names_the_node_that_published_it() -> None:
    class Desk(tw.Service):
        def __init__(self) -> None:
            self.seen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        @tw.on("orders.*")
        async def on_order(self, order: int) -> None:
            self.seen.put_nowait((tw.context().node, tw.context().method))

    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="desk") as desk, tw.Node(url, name="shop") as shop:
            service = Desk()
            await desk.serve(service)
            for publisher in (shop, hub, desk):
                publisher.publish("orders.new", 7)
                assert await asyncio.wait_for(service.seen.get(), 30) == (publisher.name, "on_order")
            asked = await desk.subscribe("who.asks", lambda _, context: context.origin)
            assert await shop.request("who.asks", 1) == "shop"
            assert asked.unsubscribe()


async def test_subscriptions_of_a_node_are_shared_when_it_becomes_a_hub(started: Programs) -> None:
    async with tw.Node(name="hub") as hub:
        seen: list[tuple[str, str]] = []
        refs = {}
        for name in ("set", "ended", "gone", "other"):
            refs[name] = hub.spawn(lambda message, ctx, name=name: seen.append((name, ctx.subject)))
        hub.set_subscriptions(refs["set"], ["a", "b"])
        hub.set_subscriptions(refs["set"], ["b", "c"])
        for name in ("ended", "gone"):
            hub.subscribe("a", refs[name])
            hub.subscribe("c", refs[name])
        hub.unsubscribe(refs["ended"], "a")
        hub.unsubscribe_all(refs["gone"])
        subscription = hub.subscribe("a", refs["other"])
        subscription.unsubscribe()
        for _ in range(100):
            hub.subscribe("x", refs["other"])
            hub.unsubscribe(refs["other"], "x")
        url = (await hub.listen(started.url("tcp"))).url
        async with tw.Node(url, name="other") as other:
            for subject in ("a", "b", "c", "x"):
                other.publish(subject, 1)
        await hub.idle(30)
    assert sorted(seen) == [("ended", "c"), ("set", "b"), ("set", "c")]
