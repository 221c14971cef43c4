"""Streams in a data folder, at a hub that has one, and on NATS."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import PATIENCE, both, every_home, home


def double(number: int) -> int:
    return 2 * number


async def test_many_long_events_at_once_are_stored_by_a_hub_that_takes_few_of_them_at_a_time(tmp_path: Path) -> None:
    long, config = bytes(1 << 20), tw.LinkConfig(payload_bytes=8 << 20)
    async with (
        tw.Node(data=tmp_path, config={"links": config}) as hub,
        tw.Node(hub.listen("tide://127.0.0.1:0").url) as node,
    ):
        logs = await node.stream("logs", subjects=["logs.>"])
        acks = await asyncio.gather(*(logs.publish(f"logs.{n}", long, content="bytes") for n in range(20)))
        assert [ack.sequence for ack in acks] == list(range(1, 21))
        async with logs.publisher() as out:
            for n in range(20, 40):
                await out.publish(f"logs.{n}", long, content="bytes")
        assert out.acked == 20
        subjects = [event.subject async for event in logs.read(start=0, stop=41)]
        assert subjects == [f"logs.{n}" for n in range(40)]


@pytest.mark.promise("P17.4")
@every_home
async def test_published_events_are_read_in_order_and_consumed_once(kind: str, tmp_path: Path) -> None:
    async with home(kind, tmp_path) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        billing = await orders.consumer("billing", filter="orders.created", start="all")
        acks = await asyncio.gather(*(orders.publish("orders.created", {"n": n}, key=f"k{n % 3}") for n in range(100)))
        assert sorted(ack.sequence for ack in acks) == list(range(1, 101))
        assert {ack.durability for ack in acks} == {"memory" if kind == "nats" else "disk"}
        await orders.publish("orders.gone", b"raw", content="bytes", headers={"a": "b"})
        async with orders.publisher(window=50) as out:
            for n in range(100, 300):
                await out.publish("orders.created", {"n": n})
        assert out.acked == 200
        seen = []
        async with billing:
            async for event in billing:
                seen.append(event.value["n"])
                await event.ack()
                if len(seen) == 300:
                    break
        assert seen == list(range(300))
        info = await billing.info()
        assert (info.lag, info.in_flight, info.redelivered) == (0, 0, 0)
        raw = [event async for event in orders.read(filter="orders.gone")]
        assert [(event.value, event.headers, event.sequence) for event in raw] == [(b"raw", {"a": "b"}, 101)]
        assert [event.sequence async for event in orders.read(start=299, stop=300)] == [299, 300]
        assert (await orders.info()).messages == 301


@pytest.mark.promise("P17.7")
async def test_the_ids_of_purged_events_are_forgotten_when_the_folder_is_opened_again(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        assert not (await orders.publish("orders.made", 1, id="one")).duplicate
        assert (await orders.publish("orders.made", 1, id="one")).duplicate
        assert await orders.purge() == 1
    async with tw.Node(data=tmp_path) as node:
        orders = await node.find_stream("orders")
        assert not (await orders.publish("orders.made", 1, id="one")).duplicate


@pytest.mark.promise("P17.33")
@both
async def test_a_requeued_event_does_not_wait_for_others_of_its_key(home: tw.Node) -> None:
    orders = await home.stream("orders", subjects=["orders.>"])
    billing = await orders.consumer("billing", start="all", max_deliver=1, order="key")
    for number in range(2):
        await orders.publish("orders.made", number, key="a")
    first = await billing.next(timeout=10)
    assert first is not None and first.value == 0
    await first.nak(wait=True)
    second = await billing.next(timeout=10)
    assert second is not None and second.value == 1
    assert await billing.requeue(1) == 1
    again = await billing.next(timeout=10)
    assert again is not None and again.value == 0, "the second event of the key is still out"
    await again.ack()
    await second.ack()
    await billing.flush()


@both
async def test_bad_input_is_refused_with_what_to_do(home: tw.Node) -> None:
    orders = await home.stream("orders", subjects=["orders.>"], max_messages=3)
    with pytest.raises(tw.InvalidArgument, match="letters, digits"):
        await home.stream("or ders", subjects=["orders.>"])
    with pytest.raises(tw.InvalidArgument, match="none of its own"):
        await orders.publish("other", 1)
    with pytest.raises(tw.Unsupported, match="one machine"):
        await home.stream("copied", subjects=["c.>"], replicas=3)
    first = await orders.publish("orders.a", 1, id="one")
    assert await orders.publish("orders.a", 1, id="one") == first._replace(duplicate=True)
    await orders.publish("orders.a", 2)
    with pytest.raises(tw.PublishFailed, match=r'message 1 \(id "four"\): StreamFull') as failed:
        async with orders.publisher() as out:
            await out.publish("orders.a", 3)
            await out.publish("orders.a", 4, id="four")
    assert len(failed.value.failures) == 1
    consumer = await orders.consumer("c", start="all", max_in_flight=1)
    event = await consumer.next()
    assert event is not None
    await event.ack(wait=True)
    with pytest.raises(tw.StaleDelivery, match="settled before"):
        await event.ack()
    assert await orders.purge() == 3
    await orders.delete()
    for refused in (orders.info(), orders.publish("orders.a", 1), consumer.next()):
        with pytest.raises(tw.NotFound):
            await refused


@every_home
async def test_buckets_and_leases(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", logger="tidewire")
    async with home(kind, tmp_path) as node:
        config = await node.kv("config", history=2)
        revision = await config.put("limits.eu", {"most": 3})
        entry = await config.get("limits.eu")
        assert entry is not None and (entry.value, entry.revision) == ({"most": 3}, revision)
        with pytest.raises(tw.RevisionConflict, match=rf"revision( is)? {revision}\b"):
            await config.create("limits.eu", 1)
        changes = config.watch("limits.*")
        assert (await anext(changes)).value == {"most": 3}
        await config.update("limits.eu", 4, revision=revision)
        assert (await anext(changes)).value == 4
        await config.delete("limits.eu")
        assert (await anext(changes)).is_deleted
        assert await config.get("limits.eu") is None and await config.keys() == []
        if kind != "nats":
            await config.put("short", 1, ttl=0.05)
            assert (await anext(config.watch("short", after=4))).revision == 5

        async with node.lease("nightly.run", ttl=5.0) as first:
            fence = first.fence
            with pytest.raises(tw.LeaseHeld, match="holds it"):
                await node.lease("nightly.run", timeout=0.0).acquire()
        async with node.lease("nightly.run") as second:
            assert second.fence > fence and second.is_held
        with pytest.raises(tw.LeaseLost):
            second.fence  # noqa: B018
        for find in (node.find_kv, node.find_stream):
            with pytest.raises(tw.NotFound):
                await find("none")
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.promise("P17.125")
async def test_delayed_messages_and_those_with_a_time_to_live(home: tw.Node, virtual_time: None) -> None:
    jobs = await home.stream("jobs")
    consumer = await jobs.consumer("c", start="all")
    later = await jobs.publish("jobs.later", "later", delay=1, headers={"a": "b"})
    named = await jobs.publish("jobs.later", "named", delay=1, id="job-7")
    assert (await jobs.publish("jobs.now", "now")).schedule_id is None
    assert (await jobs.info()).delayed == 2
    events = [await consumer.next(timeout=30) for _ in range(3)]
    first, *due = [event for event in events if event is not None]
    assert (first.value, {event.value for event in due}) == ("now", {"later", "named"})
    # The ack finds the event, whose sequence is another one.
    ids = {event.headers["schedule-id"]: event for event in due}
    assert ids.keys() == {later.schedule_id, "job-7"} and named.schedule_id == "job-7"
    found = ids[later.schedule_id or ""]
    assert (found.value, found.headers["a"]) == ("later", "b") and found.sequence > later.sequence
    assert (await jobs.info()).delayed == 0
    if str(home.url or "tide").startswith("tide"):  # Times to live have whole seconds on NATS.
        await jobs.publish("jobs.short", 1, ttl=0.0)
        assert [event.value async for event in jobs.read(filter="jobs.short")] == []


def test_plain_threads(tidewire_streams: tw.Node) -> None:
    orders = tidewire_streams.sync.stream("orders", subjects=["orders.>"])
    assert orders.publish("orders.a", 0).sequence == 1
    assert orders.publish_all(("orders.a", n) for n in range(1, 500)) == 499
    assert [event.value for event in orders.read()] == list(range(500))
    consumer = orders.consumer("c", start="all")
    for n in range(500):
        event = consumer.next(timeout=10)
        assert event is not None and event.value == n
        consumer.ack(event)
    consumer.close()
    assert consumer.info().lag == 0
    bucket = tidewire_streams.sync.kv("b")
    bucket.put("k", 1)
    entry = bucket.get("k")
    assert entry is not None and entry.value == 1
    with tidewire_streams.sync.lease("l") as lease:
        assert lease.is_held


async def test_each_blocking_form_names_what_would_block_the_loop(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path) as node:
        sync, wide = node.sync, await asyncio.to_thread(node.sync.stream, "orders", subjects=["orders.>"])
        consumer = await asyncio.to_thread(wide.consumer, "billing")
        served, agent = await node.serve(double, name="math"), node.agent(double, id="a")
        actor, lease = node.spawn(double), sync.lease("nightly")
        calls: dict[str, Callable[[], object]] = {
            "stream": lambda: sync.stream("more"),
            "publish": lambda: wide.publish("orders.a", 1),
            "next": consumer.next,
            "info": sync.command("none").info,
            "acquire": lease.__enter__,
            "commands": sync.commands,
            "request": lambda: sync.request("nobody", 1),
            "ask": lambda: sync.ask(actor, 1),
            "idle": sync.idle,
            "math.double": lambda: node.client("math").sync.double(1),
            "send": lambda: agent.sync.send(1, to="a"),
            "stop": served.sync.stop,
        }
        for name, call in calls.items():
            with pytest.raises(tw.InvalidArgument, match=rf"^{name} would block this thread's event loop: await the "):
                call()
        assert (await node.idle(30), node.ledger) == (None, None)
        assert await asyncio.to_thread(sync.ask, actor, 2) == 4


async def test_a_folder_is_opened_once_and_again_after_its_node_has_stopped(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        await orders.publish("orders.a", 1)
        async with tw.Node(data=tmp_path) as other:
            with pytest.raises(tw.DataInUse, match="another node or process"):
                await other.streams()
    async with tw.Node(data=tmp_path) as again:
        [info] = await again.streams()
        assert (info.name, info.messages) == ("orders", 1)
    async with tw.Node() as nowhere:
        with pytest.raises(tw.InvalidArgument, match="data: this node has no place for streams"):
            await nowhere.streams()


@both
async def test_the_newest_of_each_key_stays(home: tw.Node) -> None:
    prices = await home.stream("prices", subjects=["prices.>"], compact="key")
    for number in range(10):
        await prices.publish("prices.eu", number, key=f"k{number % 3}")
    assert [(event.key, event.value) async for event in prices.read()] == [("k1", 7), ("k2", 8), ("k0", 9)]
    info = await prices.info()
    assert (info.messages, info.last, info.settings["compact"]) == (3, 10, "key")
    with pytest.raises(tw.InvalidArgument, match='key: it is missing: stream "prices"'):
        await prices.publish("prices.eu", 1)
    with pytest.raises(tw.SettingsDiffer, match="compact is key, not subject"):
        await home.stream("prices", subjects=["prices.>"], compact="subject")
    with pytest.raises(tw.InvalidArgument, match="compact: 'value' is not allowed"):
        await home.stream("other", subjects=["other.>"], compact="value")  # type: ignore[arg-type]
    with pytest.raises(tw.Unsupported, match="bounds a compacted stream by its names"):
        await home.stream("other", subjects=["other.>"], compact="key", max_messages=3)


@dataclass
class Line:
    goods: str
    count: int


@dataclass
class Order:
    customer: str
    lines: list[Line]


@both
async def test_values_arrive_as_the_type_that_was_asked_for(home: tw.Node) -> None:
    orders = await home.stream("orders", subjects=["orders.>"])
    billing = await orders.consumer("billing", start="all", type=Order)
    order = Order("anna", [Line("tea", 2)])
    await orders.publish("orders.a", order)
    plain = {"customer": "anna", "lines": [{"goods": "tea", "count": 2}]}
    await orders.publish("orders.b", plain, content="json")
    await orders.publish("orders.c", {**plain, "lines": [{"goods": "tea", "count": "two"}]}, content="json")
    read = [event async for event in orders.read(type=Order)]
    assert [event.value for event in read[:2]] == [order, order]
    for _ in range(2):
        event = await billing.next()
        assert event is not None and event.value == order
    wrong = await billing.next()
    for event in (read[2], wrong):
        assert event is not None
        with pytest.raises(
            tw.InvalidArgument, match=r"stream 'orders': event 3: value\.lines\[0\]\.count: .*Order"
        ) as error:
            _ = event.value
        assert "int" in str(error.value) and "str" in str(error.value)
        assert b"two" in event.payload
    assert [event.value async for event in orders.read(start=2, stop=2)] == [plain]


async def test_acks_that_are_lost_are_told_once_and_the_consumer_goes_on(tidewire_streams: tw.Node) -> None:
    orders = await tidewire_streams.stream("orders", subjects=["orders.>"])
    await orders.publish("orders.a", 1)
    billing = await orders.consumer("billing", start="all")
    event = await billing.next()
    assert event is not None
    await billing.delete()
    await event.ack()
    with pytest.raises(tw.NotFound):
        await billing.flush()
    await orders.consumer("billing", start="all")
    event = await billing.next(timeout=30)
    assert event is not None and event.value == 1
    await event.ack(wait=True)


async def test_a_long_log_is_opened_while_the_event_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidewire import _binding

    went_on, opened = threading.Event(), _binding.StreamHome.open_folder

    class Slow:
        @staticmethod
        def open_folder(path: str) -> Any:
            assert went_on.wait(30), "the event loop stands still while the folder is opened"
            return opened(path)

    monkeypatch.setattr(_binding, "StreamHome", Slow)
    async with tw.Node(data=tmp_path) as node:
        asyncio.get_running_loop().call_soon(went_on.set)
        orders = await node.stream("orders", subjects=["orders.>"])
        assert (await orders.publish("orders.a", 1)).sequence == 1


async def test_waits_at_a_hub_end_at_once_with_an_event_or_the_end_of_the_hub(tmp_path: Path) -> None:
    hub = tw.Node(data=tmp_path)
    async with hub, tw.Node(hub.listen("tide://127.0.0.1:0").url) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        consumer = await orders.consumer("billing", raise_on_outage=True)
        waiting = asyncio.ensure_future(consumer.next())
        ends = asyncio.ensure_future(anext(orders.read(start="new", follow=True)))
        # Both are asked for at the hub by the time that it has answered this.
        await orders.info()
        await orders.publish("orders.created", 1)
        event = await asyncio.wait_for(waiting, 30)
        assert event is not None and event.value == 1
        assert (await asyncio.wait_for(ends, 30)).value == 1
        again = asyncio.ensure_future(consumer.next())
        await orders.info()
        started = asyncio.get_running_loop().time()
        ledger = await hub.stop(timeout=60.0)
        assert asyncio.get_running_loop().time() - started < 30, "it waits for nobody who only waits"
        assert ledger.balanced
        with pytest.raises(tw.TidewireError) as caught:
            await asyncio.wait_for(again, 30)
        assert caught.value.retryable


# Batches


async def test_a_batch_is_stored_whole_when_its_block_is_left(home: tw.Node) -> None:
    orders = await home.stream("orders", subjects=["orders.>", "stock.>"])
    async with orders.batch() as batch:
        batch.publish("orders.created", {"n": 1}, key="anna", id="one")
        batch.publish("stock.taken", b"raw", content="bytes")
        assert (await orders.info()).messages == 0
    assert [ack.sequence for ack in batch.acks] == [1, 2]
    events = [event async for event in orders.read()]
    assert [(event.subject, event.value, event.key) for event in events] == [
        ("orders.created", {"n": 1}, "anna"),
        ("stock.taken", b"raw", None),
    ]
    with pytest.raises(tw.InvalidArgument, match="the block of this batch was left"):
        batch.publish("orders.created", 2)
    async with orders.batch() as empty:
        pass
    assert empty.acks == [] and (await orders.info()).messages == 2


async def test_of_a_batch_with_a_wrong_message_and_of_a_block_that_raises_nothing_is_stored(home: tw.Node) -> None:
    orders = await home.stream("orders", subjects=["orders.>"])
    with pytest.raises(tw.TidewireError) as failed:
        async with orders.batch() as batch:
            batch.publish("orders.created", 1)
            batch.publish("elsewhere", 2)
            batch.publish("orders.created", 3)
    assert "elsewhere" in str(failed.value)
    with pytest.raises(RuntimeError, match="changed my mind"):
        async with orders.batch() as batch:
            batch.publish("orders.created", 1)
            raise RuntimeError("changed my mind")
    with pytest.raises(tw.InvalidArgument, match="a batch has at most 1,000 messages"):
        async with orders.batch() as batch:
            for number in range(1_001):
                batch.publish("orders.created", number)
    assert (await orders.info()).messages == 0 and batch.acks == []


# Events that go back unseen

LONG = 600.0


@pytest.mark.promise("P17.100")
async def test_an_event_whose_last_delivery_is_returned_is_not_dead(home: tw.Node) -> None:
    stream = await home.stream("orders", subjects=["orders.>"])
    for number in range(40):
        await stream.publish("orders.new", number)
    seen = []
    while len(seen) < 40:
        async with await stream.consumer("billing", start="all", max_deliver=1, ack_wait=LONG) as consumer:
            # The second fetch takes several events ahead, and closing returns them.
            for _ in range(2):
                if (event := await consumer.next(PATIENCE)) is not None:
                    seen.append(event.value)
                    await event.ack()
            assert await consumer.dead_letters() == []
    assert sorted(seen) == list(range(40))


async def test_a_requeued_event_that_fails_again_comes_again(home: tw.Node) -> None:
    stream = await home.stream("orders", subjects=["orders.>"])
    consumer = await stream.consumer("billing", start="all", max_deliver=2, ack_wait=LONG)
    await stream.publish("orders.new", "first")
    event = await consumer.next(PATIENCE)
    assert event is not None
    await event.term("unreadable", wait=True)
    assert await consumer.requeue(event.sequence) == 1
    for delivery in (1, 2):
        event = await consumer.next(PATIENCE)
        assert event is not None and (event.value, event.delivery) == ("first", delivery)
        await event.nak(wait=True)
    assert [letter.sequence for letter in await consumer.dead_letters()] == [1]


async def test_a_message_is_stored_once_somebody_awaits_it(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path) as node:
        orders = await node.stream("orders")
        with pytest.warns(RuntimeWarning, match="publish was never awaited"):
            orders.publish("orders", "forgotten")
        acks = await asyncio.gather(*(orders.publish("orders", number) for number in range(12_000)))
        assert [ack.sequence for ack in acks] == list(range(1, 12_001))
