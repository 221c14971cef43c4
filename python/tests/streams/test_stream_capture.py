"""Streams with ``capture=True``: they store what ``node.publish`` sends on their subjects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw


async def stored(stream: tw.Stream, count: int) -> list[tw.Event]:
    """Return the first events of a stream, once they are there."""
    found: list[tw.Event] = []
    async with asyncio.timeout(60):
        async for event in stream.read(follow=True):
            found.append(event)
            if len(found) == count:
                return found
    raise AssertionError


@pytest.mark.promise("P17.124")
async def test_a_capture_stores_what_any_node_publishes_once_and_in_order(homes: list[tw.Node]) -> None:
    one, other = homes
    orders = await one.stream("orders", subjects=["ord.>", "bill"], capture=True)
    await other.stream("orders", capture=True)
    await one.stream("orders", capture=True)
    await one.stream("silent", subjects=["silent.>"])
    for number in range(200):
        one.publish("ord.a", number, {"number": str(number)})
    events = await stored(orders, 200)
    assert [(event.value, event.headers["number"]) for event in events] == [(n, str(n)) for n in range(200)]
    assert {event.subject for event in events} == {"ord.a"}
    other.publish("ord.b", {"total": 12.5})
    other.publish("bill", "due")
    one.publish("silent.a", 1)
    await stored(orders, 202)
    await orders.publish("ord.c", "end")
    later = [event.value async for event in orders.read(start=201)]
    assert sorted(later, key=repr) == ["due", "end", {"total": 12.5}]
    assert [event async for event in (await one.find_stream("silent")).read()] == []


@pytest.mark.promise("P17.124")
async def test_jetstream_stores_a_subject_of_the_url_once_with_a_capture_or_without(nats_url: str) -> None:
    async with tw.Node(f"{nats_url}?subjects=ord.>", name="one") as one, tw.Node(f"{nats_url}?subjects=ord.>") as other:
        hub = one.listen("tide://127.0.0.1:0").url
        async with tw.Node(hub) as joined:
            plain = await one.stream("plain", subjects=["ord.plain.>", "near.>"])
            captured = await one.stream("captured", subjects=["ord.captured.>", "far.>"], capture=True)
            await joined.stream("captured", capture=True)
            for number in range(5):
                one.publish("ord.plain.a", number)
                one.publish("ord.captured.a", number)
                other.publish("far.a", number)
            await stored(plain, 5)
            await stored(captured, 10)
            # This one comes to all nodes as a message of NATS.
            await captured.publish("ord.captured.a", "end")
            other.publish("far.a", "last")
            assert (await stored(captured, 12))[-1].value in ("end", "last")
            assert [event.value async for event in plain.read()] == list(range(5))
            values = [event.value async for event in captured.read(filter="ord.captured.>")]
            assert values == [*range(5), "end"]


@pytest.mark.promise("P17.124")
async def test_a_capture_that_fails_is_a_dead_letter_to_requeue(tidewire_streams: tw.Node) -> None:
    orders = await tidewire_streams.stream("orders", max_messages=2, full="refuse", capture=True)
    lost: list[Any] = [3, object()]
    for message in (1, 2, *lost):
        tidewire_streams.publish("orders.a", message)
    await tidewire_streams.idle(60)
    assert [event.value async for event in orders.read()] == [1, 2]
    letters = {str(letter.message): letter for letter in tidewire_streams.dead_letters.list(name="capture-orders")}
    assert letters.keys() == {"3", str(lost[1])}
    assert (letters["3"].error or "").startswith("StreamFull")
    await orders.purge()
    tidewire_streams.dead_letters.requeue(letters["3"])
    await tidewire_streams.idle(60)
    assert [(event.subject, event.value) async for event in orders.read()] == [("orders.a", 3)]


def test_a_message_that_no_stream_stores_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidewire")
    with tw.Node(data=tmp_path) as node:
        node.sync.stream("orders")
        node.sync.stream("bills", capture=True)
        heard = node.subscribe("orders.heard", lambda _: None)
        for subject in ("orders.heard", "other", "bills.a", *["orders.a"] * 3):
            node.publish(subject, 1)
        heard.unsubscribe()
    [record] = [one for one in caplog.records if "does not store it" in one.getMessage()]
    assert (record.levelname, "'orders.a', and stream 'orders'" in record.getMessage()) == ("WARNING", True)
    assert "node.stream('orders', capture=True)" in record.getMessage()


def test_the_end_of_a_node_stores_what_was_published(tmp_path: Path) -> None:
    with tw.Node(data=tmp_path) as node:
        node.sync.stream("orders", capture=True)
        for number in range(1_000):
            node.publish("orders.a", number)
    with tw.Node(data=tmp_path) as node:
        assert [event.value for event in node.sync.stream("orders").read()] == list(range(1_000))
