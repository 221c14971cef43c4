"""Rows of one node that is large: searched, sorted and cut where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw

ACTORS, STREAMS = 10_000, 120


@pytest.mark.promise("P13.109")
async def test_ten_thousand_actors_of_a_node_are_searched_sorted_and_cut_at_the_node(place: Path) -> None:
    tokens = [tw.Token("of-the-hub"), tw.Token("of-a-viewer", "viewer", inspect=True)]
    async with tw.Node(name="crowd", inspect=True) as node:
        url = node.listen("ws://127.0.0.1:0", tokens=tokens).url
        refs = [node.spawn(lambda n: n, name=f"actor-{number:05}") for number in range(ACTORS)]
        for number in (7, 42, 42, 9_999, 9_999, 9_999):
            await refs[number].ask(1)
        node.agent(lambda n: n, id="desk", type="trade")
        async with tw.Node(url, token="of-a-viewer") as viewer:
            (info,) = [one for one in await viewer.services() if one.name == "$sys"]
            sys: Any = viewer.client("$sys").with_(instance=info.instances[0])

            async def names(**query: Any) -> list[str]:
                rows = (await sys.rows(["agents", "actors"], **query))["rows"]
                return [row.get("id") if row["table"] == "agents" else row["name"] for row in rows]

            busiest = await sys.rows(["actors"])
            assert (len(busiest["rows"]), busiest["found"], busiest["total"]) == (100, ACTORS, ACTORS)
            assert [row["name"] for row in busiest["rows"][:3]] == ["actor-09999", "actor-00042", "actor-00007"]
            assert busiest["rows"][0]["handled"] == 3 and busiest["node"] == "crowd"
            assert await names(sort="name", descending=False, first=9_998, limit=2) == ["actor-09998", "actor-09999"]
            assert await names(sort="handled", first=1, limit=1) == ["actor-00042"]
            assert await names(search="ACTOR-0004", sort="name", limit=1_000) == [
                f"actor-{number:05}" for number in range(49, 39, -1)
            ]
            assert await names(search="trade desk") == ["desk"]
            assert await names(search="nobody") == []
            most = await sys.rows(["actors"], limit=1_000)
            assert len(json.dumps(most)) < 1_048_576 and len(most["rows"]) == 1_000
            for wrong, why in (
                ({"kinds": ["nodes"]}, "kinds: "),
                ({"kinds": []}, "kinds: "),
                ({"limit": 1_001}, "first, limit: 0 and 1001 are not allowed"),
                ({"first": -1}, "first, limit: -1"),
                ({"sort": "capacity"}, "sort: 'capacity' is not allowed: give one of load, depth"),
                ({"search": 1}, "search, descending: "),
                ({"of": 1}, r"rows: \['of'\] is not allowed: give kinds, first"),
            ):
                with pytest.raises(tw.InvalidArgument, match=why):
                    await sys.rows(**{"kinds": ["actors"], **wrong})


@pytest.mark.promise("P13.109")
async def test_streams_are_searched_sorted_and_cut_at_their_hub(tmp_path: Path) -> None:
    async with tw.Node(name="hub", data=tmp_path) as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        for number in range(STREAMS):
            await hub.stream(f"orders-{number:03}", subjects=[f"shop-{number}.>"])
        await (await hub.find_stream("orders-077")).publish("shop-77.new", 1)
        async with tw.Node(url) as node:
            streams = node.client("tidewire-streams")

            async def page(*query: Any) -> tuple[list[str], int, int]:
                rows, found, total = await streams.look("page_streams", list(query))
                return [row["name"] for row in rows], found, total

            assert await page("", "name", False, False, 118, 50) == (["orders-118", "orders-119"], STREAMS, STREAMS)
            assert await page("", "messages", True, True, 0, 1) == (["orders-077"], STREAMS, STREAMS)
            assert await page("SHOP-11", "name", True, False, 1, 2) == (["orders-118", "orders-117"], 11, STREAMS)
            for wrong, why in (("colour", "sort: .*name, messages, bytes"), ("name", "limit: 0 is not allowed")):
                with pytest.raises(tw.InvalidArgument, match=why):
                    await streams.look("page_streams", ["", wrong, False, False, 0, 0])
