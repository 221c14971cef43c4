"""Values of other programs in buckets and streams, and ours as other programs read them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import nats
import pytest
import tidewire as tw
from home_support import PATIENCE

JSON_HEADERS = [
    {"content-type": "application/json"},
    {"Content-Type": "application/json; charset=utf-8"},
    {"CONTENT-TYPE": "Application/JSON;charset=UTF-8"},
]
VALUES = [5, None, "text", {"most": 3}, b"", b"\x05", b"x" * 300, b"y" * 100_000, bytearray(b"z"), [b"in", b"side"]]


@pytest.mark.promise("P17.111")
async def test_entries_of_other_clients_are_bytes(nats_url: str) -> None:
    async with tw.Node(nats_url) as node:
        config = await node.kv("config", history=5)
        other = await nats.connect(nats_url)
        theirs = await other.jetstream().key_value("config")
        for number, payload in enumerate([b"5", b"", b"\xc4\x01x", b'{"most":3}', b"w" * 70_000]):
            revision = await theirs.put("limit", payload)
            entry = await config.get("limit")
            old = await config.get("limit", revision)
            newest = (await config.history("limit"))[-1]
            seen = await asyncio.wait_for(anext(config.watch("limit", after=revision - 1)), PATIENCE)
            assert entry is not None and old is not None
            for found in (entry, old, newest, seen):
                assert (found.value, found.payload, found.revision) == (payload, payload, revision), number
        await theirs.delete("limit")
        assert await config.get("limit") is None
        assert [entry.value for entry in await config.history("limit")][-1] is None
        await other.close()


@pytest.mark.promise("P17.112")
async def test_content_of_a_put_is_what_other_clients_read(nats_url: str) -> None:
    async with tw.Node(nats_url) as node:
        config = await node.kv("config")
        other = await nats.connect(nats_url)
        theirs = await other.jetstream().key_value("config")
        first = await config.create("json", {"most": 3}, content="json")
        await config.update("json", {"most": 4}, revision=first, content="json")
        await config.put("text", "grüße", content="text")
        await config.put("bytes", bytearray(b"\xff\x00"), content="bytes")
        for key, payload in {"json": b'{"most":4}', "text": "grüße".encode(), "bytes": b"\xff\x00"}.items():
            assert (await theirs.get(key)).value == payload
        await other.close()


async def test_every_value_comes_back_and_content_comes_back_as_bytes(homes: list[tw.Node]) -> None:
    writer, reader = homes
    ours, theirs = await writer.kv("config"), await reader.kv("config")
    for value in VALUES:
        await ours.put("value", value)
        entry = await theirs.get("value")
        assert entry is not None
        assert (entry.value, type(entry.value)) == (value, type(value))
        assert entry.payload == value if isinstance(value, bytes) else tw.values.decode(entry.payload) == value
    contents: list[tuple[Any, str, bytes]] = [([1, 2], "json", b"[1,2]"), ("a", "text", b"a"), (b"b", "bytes", b"b")]
    for value, content, payload in contents:
        await ours.put("content", value, content=content)
        entry = await theirs.get("content")
        assert entry is not None and (entry.value, entry.payload) == (payload, payload)
    with pytest.raises(tw.InvalidArgument, match="content: 'xml' is not allowed"):
        await ours.put("content", 1, content="xml")
    with pytest.raises(tw.InvalidArgument, match="value: a int is not allowed with content='text': give text"):
        await ours.put("content", 1, content="text")


@pytest.mark.promise("P17.101")
async def test_json_is_read_under_every_spelling_of_its_header(homes: list[tw.Node]) -> None:
    writer, reader = homes
    await writer.stream("orders", subjects=["orders.>"])
    orders = await reader.find_stream("orders")
    for headers in JSON_HEADERS:
        await orders.publish("orders.new", b'{"total": 5}', content="bytes", headers=headers)
    await orders.publish("orders.new", b"{}", content="bytes", headers={"Content-Type": "application/jsonl"})
    found = [event.value async for event in orders.read()]
    assert found == [{"total": 5}] * len(JSON_HEADERS) + [b"{}"]


@pytest.mark.promise("P17.113")
async def test_a_value_above_the_limit_of_the_servers_is_refused_at_once(nats_url: str) -> None:
    async with tw.Node(nats_url) as node:
        config = await node.kv("config")
        limit = 1_048_576
        for length in (limit, 2 * limit):
            with pytest.raises(tw.PayloadTooLarge, match=f"would have {length} bytes, .* at most {limit}"):
                await asyncio.wait_for(config.put("long", b"x" * length), 2.0)
        revision = await config.put("long", b"x" * (limit - 200))
        with pytest.raises(tw.PayloadTooLarge, match="at most"):
            await config.update("long", b"x" * (limit - 60), revision=revision)
        orders = await node.stream("orders", subjects=["orders.>"])
        with pytest.raises(tw.PayloadTooLarge, match=r"payload: .* at most 1048576"):
            await orders.publish("orders.new", b"x" * 2 * limit)


@dataclass
class Limit:
    most: int


@pytest.mark.promise("P17.114")
async def test_bytes_are_read_as_json_for_a_type(homes: list[tw.Node]) -> None:
    writer, reader = homes
    config, orders = await writer.kv("config"), await writer.stream("orders", subjects=["orders.>"])
    theirs = await reader.kv("config")
    await config.put("limit", {"most": 3}, content="json")
    entry = await theirs.get("limit", type=Limit)
    assert entry is not None and (entry.value, entry.payload) == (Limit(3), b'{"most":3}')
    assert [entry.value for entry in await theirs.history("limit", type=Limit)] == [Limit(3)]
    seen = await asyncio.wait_for(anext(theirs.watch("limit", type=Limit)), PATIENCE)
    assert seen.value == Limit(3)
    as_bytes = await theirs.get("limit", type=bytes)
    assert as_bytes is not None and as_bytes.value == b'{"most":3}'
    for wrong, words in {b'{"most":"x"}': r"revision 2: value.most: .*int", b"most": "revision 3: value: "}.items():
        await config.put("limit", wrong)
        entry = await theirs.get("limit", type=Limit)
        assert entry is not None
        with pytest.raises(tw.InvalidArgument, match=f"bucket 'config': {words}"):
            _ = entry.value
    await orders.publish("orders.new", b"[1, 2]", content="bytes")
    assert [event.value async for event in orders.read(type=list[int])] == [[1, 2]]
    with pytest.raises(tw.InvalidArgument, match="stream 'orders': event 1: "):
        _ = [event.value async for event in orders.read(type=int)]
