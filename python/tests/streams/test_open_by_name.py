"""Streams and buckets that others made: opened by name alone, and errors about their settings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import tidewire as tw
from home_support import every_home, nodes


@pytest.mark.promise("P17.116")
async def test_a_name_alone_opens_what_another_node_made(homes: list[tw.Node]) -> None:
    one, other = homes
    made = await one.stream("orders", subjects=["orders.>"], max_messages=3, full="drop_old", dedupe=30.0)
    await made.publish("orders.eu", 1)
    found = await other.stream("orders")
    assert (await found.info()).settings == (await made.info()).settings
    assert [event.value async for event in found.read()] == [1]
    bucket = await one.kv("limits", history=7, ttl=600.0)
    await bucket.put("eu", 5)
    opened = await other.kv("limits")
    entry = await opened.get("eu")
    assert entry is not None and entry.value == 5
    assert [one["history"] for one in await other.buckets() if one["name"] == "limits"] == [7]


@pytest.mark.promise("P17.116")
async def test_a_name_alone_makes_what_is_not_there(homes: list[tw.Node]) -> None:
    one, other = homes
    with pytest.raises(tw.NotFound, match=r'"orders".*: make it with node\.stream\(\'orders\'\)'):
        await one.find_stream("orders")
    with pytest.raises(tw.NotFound, match=r'"limits".*: make it with node\.kv\(\'limits\'\)'):
        await one.find_kv("limits")
    orders, again = await asyncio.gather(one.stream("orders"), other.stream("orders"))
    await orders.publish("orders", 1)
    await again.publish("orders.eu.north", 2)
    assert [event.value async for event in (await other.find_stream("orders")).read()] == [1, 2]
    assert [(info.name, set(info.subjects)) for info in await one.streams()] == [("orders", {"orders", "orders.>"})]
    aged = await one.stream("aged", max_age=5.0)
    assert (await aged.info()).subjects == ("aged", "aged.>")
    await (await one.kv("limits")).put("eu", 5)
    entry = await (await other.find_kv("limits")).get("eu")
    assert entry is not None and entry.value == 5
    await one.kv("limits", history=1, replicas=1)
    with pytest.raises(tw.SettingsDiffer, match="history is 1, not 2"):
        await other.kv("limits", history=2)


@pytest.mark.promise("P17.117")
@every_home
async def test_all_settings_that_differ_are_named_at_once(kind: str, tmp_path: Path) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        stream = await one.stream("orders", subjects=["orders.>", "bills.>"], max_messages=3)
        await one.stream("orders", subjects=["bills.>", "orders.>"], max_messages=3)
        with pytest.raises(
            tw.SettingsDiffer,
            match=r'stream "orders": subjects is \["bills\.>", "orders\.>"\], not \["orders\.\*"\]; '
            r"max_age is None, not 5 s; max_messages is 3, not None; full is Refuse, not DropOld; "
            r"dedupe is 120 s, not 30 s; pass the existing settings, or delete it first",
        ):
            await other.stream("orders", subjects=["orders.*"], max_age=5.0, full="drop_old", dedupe=30.0)
        # Without subjects, those that it has are no difference.
        with pytest.raises(tw.SettingsDiffer, match=r'stream "orders": max_messages is 3, not 4; pass the existing'):
            await other.stream("orders", max_messages=4)
        await stream.consumer("billing", filter="orders.eu", ack_wait=30.0)
        with pytest.raises(
            tw.SettingsDiffer,
            match=r'consumer "billing": filter is \["orders\.eu"\], not \["orders\.us"\]; ack_wait is 30 s, not 10 s; '
            r"max_deliver is 5, not 9; backoff is \[.*\] s, not \[1\.0\] s; pass the existing",
        ):
            await (await other.stream("orders")).consumer(
                "billing", filter="orders.us", ack_wait=10.0, max_deliver=9, backoff=[1.0]
            )
        await one.kv("limits", history=5, ttl=60.0)
        with pytest.raises(tw.SettingsDiffer, match=r'bucket "limits": history is 5, not 1; ttl is 60 s, not 30 s; '):
            await other.kv("limits", history=1, ttl=30.0)
