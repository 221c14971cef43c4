"""Spans that a node stores for the console: the tree of a trace, limits, and no cost without."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from tidewire import _trace_context

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class Stock(tw.Service):
    @tw.method
    def take(self, item: str) -> int:
        if item == "nothing":
            raise KeyError(item)
        return 1

    @tw.method
    async def hang(self) -> None:
        await asyncio.Event().wait()


class Orders(tw.Service):
    def __init__(self, node: tw.Node, stream: tw.Stream) -> None:
        self.node, self.stream, self.shipped = node, stream, asyncio.Event()

    @tw.method
    async def order(self, item: str) -> None:
        await self.stream.publish("orders.new", item)
        await self.node.client("stock").take(item)

    @tw.on("orders.>", durable="ship")
    async def ship(self, item: str) -> None:
        assert tw.context().trace == TRACE
        with contextlib.suppress(KeyError, tw.RemoteError):
            await self.node.client("stock").take("nothing")
        self.shipped.set()


async def trace(node: tw.Node, of: str, id: str = TRACE) -> dict[str, Any]:
    """Ask the node of a name for a trace."""
    for info in await node.services():
        for detail in info.details:
            if info.name == "$sys" and detail.node == of:
                found: dict[str, Any] = await node.client("$sys").with_(instance=detail.id).trace(id)
                return found
    raise AssertionError(f"{of} is not inspected")


@pytest.mark.promise("P13.108")
async def test_a_trace_has_the_calls_and_events_of_all_nodes_without_opentelemetry(tmp_path: Path, place: Path) -> None:
    async with tw.Node(name="hub", data=tmp_path, inspect=True, spans=100) as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with (
            tw.Node(url, name="stock", inspect=True, spans=100) as stock,
            tw.Node(url, name="shop", inspect=True, spans=50) as shop,
        ):
            await stock.serve(Stock())
            orders = Orders(shop, await shop.stream("orders", subjects=["orders.>"]))
            await shop.serve(orders)
            await hub.client("orders").with_(headers={"traceparent": PARENT}).order("tea")
            await orders.shipped.wait()
            waiting = asyncio.ensure_future(hub.client("stock").with_(headers={"traceparent": PARENT}).hang())
            while "stock/hang" not in [
                row["name"] for row in (await trace(hub, "stock"))["spans"] if row["kind"] == "server"
            ]:
                await asyncio.sleep(0)
            found = await trace(hub, "shop")
            names = {row["id"]: f"{row['kind']} {row['name']}" for row in found["spans"]}
            tree = sorted((names.get(row["parent"], row["parent"]), names[row["id"]]) for row in found["spans"])
            take, order = ("client stock/take", "server stock/take"), ("client orders/order", "server orders/order")
            event, outside = ("producer publish orders.new", "consumer process orders.new"), PARENT.split("-")[2]
            assert tree == sorted(
                [
                    *[(outside, order[0]), order, (order[1], event[0]), event],
                    *[(order[1], take[0]), take, (event[1], take[0]), take],
                    *[(outside, "client stock/hang"), ("client stock/hang", "server stock/hang")],
                ]
            )
            rows = {f"{row['kind']} {row['name']}": row for row in found["spans"]}
            failed = [row for row in found["spans"] if row["error"]]
            assert [row["kind"] for row in failed] == ["client", "server"]
            assert all(row["error"].startswith("KeyError") for row in failed)
            assert [rows[name]["node"] for name in (order[0], order[1], take[1], event[1])] == [
                "hub",
                "shop",
                "stock",
                "shop",
            ]
            ended = [row["duration_us"] is not None for row in found["spans"]]
            assert (ended.count(False), rows["server stock/hang"]["duration_us"]) == (2, None)
            assert (found["stores"], found["spans_count"], found["host"]) == (100, 10, platform.node())
            assert (await trace(hub, "shop", "0" * 32))["spans"] == []
            for wrong in ("", TRACE.upper(), f"{TRACE}0"):
                with pytest.raises(tw.InvalidArgument, match=r"trace: .* is not allowed: give the id of a trace"):
                    await trace(hub, "shop", wrong)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    assert _trace_context.spans is None
    assert not [name for name in sys.modules if name.startswith("opentelemetry.sdk.trace")]


@pytest.mark.promise("P13.108")
async def test_only_the_newest_spans_are_stored_with_texts_of_bounded_length(place: Path) -> None:
    async with tw.Node(name="alone", inspect=True, spans=3) as node:
        await node.serve(Stock())
        spans = _trace_context.spans
        assert spans is not None and spans.store is not None
        for _ in range(5):
            await node.client("stock").take("tea")
        with contextlib.suppress(KeyError):
            await node.client("stock").with_(headers={"traceparent": PARENT}).take("nothing")
        node.publish("a" * 250, 1)
        found = spans.store.find(TRACE)
        assert [span.title for span in found] == ["stock/take"] * 2
        stored = list(spans.store._spans)
        assert (len(stored), len(stored[-1].title)) == (3, 200)
        assert len({span.trace_id for span in stored}) == 2
    for wrong in (-1, True, 100_001, "10"):
        with pytest.raises(tw.InvalidArgument, match=r"spans: .* is not allowed"):
            tw.Node(inspect=True, spans=wrong)  # type: ignore[arg-type]
    with pytest.raises(tw.InvalidArgument, match="give inspect=True, too"):
        tw.Node(spans=10)


@pytest.mark.promise("P13.108")
def test_the_environment_turns_the_spans_of_an_inspected_node_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEWIRE_SPANS", "20")
    node = tw.Node(inspect=True)
    assert _trace_context.spans is not None and _trace_context.spans.store is not None
    assert _trace_context.spans.store.most == 20
    del node
    gc.collect()
    assert _trace_context.spans is None
    tw.Node()
    assert _trace_context.spans is None
    monkeypatch.setenv("TIDEWIRE_SPANS", "many")
    with pytest.raises(tw.ConfigError, match="TIDEWIRE_SPANS: 'many' is not allowed: use a whole number"):
        tw.Node(inspect=True)
