"""Values of other programs in buckets and streams, and ours as other programs read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from home_support import every_home, nodes, story

JSON_HEADERS = [
    {"content-type": "application/json"},
    {"Content-Type": "application/json; charset=utf-8"},
    {"CONTENT-TYPE": "Application/JSON;charset=UTF-8"},
]


@pytest.mark.promise("P17.99")
@every_home
@story
async def test_json_is_read_under_every_spelling_of_its_header(kind: str, tmp_path: Path) -> None:
    async with nodes(kind, tmp_path) as (writer, reader):
        await writer.stream("orders", subjects=["orders.>"])
        orders = await reader.find_stream("orders")
        for headers in JSON_HEADERS:
            await orders.publish("orders.new", b'{"total": 5}', content="bytes", headers=headers)
        await orders.publish("orders.new", b"{}", content="bytes", headers={"Content-Type": "application/jsonl"})
        found = [event.value async for event in orders.read()]
        assert found == [{"total": 5}] * len(JSON_HEADERS) + [b"{}"]
