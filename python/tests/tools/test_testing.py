"""Helpers for tests of users: fakes of services, and the recorder of messages."""

from __future__ import annotations

import asyncio
import collections
import subprocess
import sys
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any

import pytest
import tidewire as tw
from link_processes import PATIENCE_S
from link_stories import fails, joined, logged, lost, three
from tidewire.testing import Cluster, Recorder, fake, in_turn


def test_the_plugin_imports_nothing_until_a_test_asks_for_a_fixture() -> None:
    look = "import sys, tidewire.testing.plugin; print(*(name for name in sys.modules if name.startswith('tidewire.')))"
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert not {"tidewire._tidewire", "tidewire.node", "tidewire.services"} & set(ran.stdout.split()), ran.stdout


class Pricing(tw.Service):
    @tw.method
    async def quote(self, ctx: tw.CallContext, symbol: str, qty: int = 1) -> float: ...

    @tw.method
    def ticks(self, symbol: str) -> AsyncIterator[float]: ...

    @tw.command
    async def reprice(self, factor: float, progress: tw.Progress) -> int: ...

    @tw.on("orders.*", durable="pricing")
    def on_order(self, order: dict[str, int]) -> None: ...


async def live(symbol: str) -> AsyncIterator[float]:
    yield 3.0


async def test_a_fake_answers_as_the_service_would_from_another_node() -> None:
    # An answer of a method is any outcome; a stream can fail in the middle.
    answers = in_turn(2.5, ValueError("closed"), lambda ctx, symbol, qty: float(qty))
    pricing = fake(Pricing, quote=answers, ticks=in_turn([1.0, ValueError("cut")], live, lambda _: iter([5.0])))
    async with three() as (_, a, b):
        served = await b.serve(pricing)
        assert (served.name, [one.name for one in served.info.methods]) == ("pricing", ["quote", "ticks"])
        client = a.client(Pricing)
        assert await client.quote("X", qty=3) == 2.5
        with pytest.raises(ValueError, match="closed"):
            await client.quote("X")
        assert await client.quote(qty=7, symbol="Y") == 7.0
        for wrong, said in (({"qyt": 3}, "qyt: there is no such parameter"), ({"qty": "3"}, "qty: '3' is not allowed")):
            with pytest.raises(tw.InvalidArgument, match=said):
                await client.quote("X", **wrong)
        with pytest.raises(AssertionError, match=r"Pricing.quote\(symbol='Z'\): .* no answer left: give one"):
            await client.quote("Z")
        seen = []
        with pytest.raises(ValueError, match="cut"):
            async for tick in client.ticks("X"):
                seen.append(tick)
        seen += [tick for _ in range(2) async for tick in client.ticks("X")]
        assert seen == [1.0, 3.0, 5.0]
        # Calls that the signature refuses are none.
        quotes = [{"symbol": "X", "qty": 3}, {"symbol": "X"}, {"symbol": "Y", "qty": 7}, {"symbol": "Z"}]
        assert pricing.calls == [*(("quote", one) for one in quotes), *[("ticks", {"symbol": "X"})] * 3]


async def test_a_fake_takes_events_and_commands_that_it_has_answers_for(tidewire_streams: tw.Node) -> None:
    orders = await tidewire_streams.stream("orders", subjects=["orders.*"])
    came: asyncio.Queue[dict[str, int]] = asyncio.Queue(10)
    pricing = fake(Pricing, reprice=in_turn(ValueError("once more"), 12), on_order=came.put)
    await tidewire_streams.serve(pricing)
    await orders.publish("orders.new", {"id": 7})
    run = await tidewire_streams.client(Pricing).reprice.start(1.5)
    assert (await came.get(), await run.result(timeout=10)) == ({"id": 7}, 12)
    assert pricing.calls.count(("reprice", {"factor": 1.5})) == 2


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"qoute": 1}, "Pricing: it has no method 'qoute': did you mean 'quote'"),
        ({"quote": lambda symbol: 1.0}, r"Pricing.quote: .* or a function of \(ctx, symbol, qty\)"),
        ({"ticks": 3}, "Pricing.ticks: 3 is not allowed: give a list, or the function that makes"),
        ({"ticks": iter([3])}, "Pricing.ticks: .* is not allowed: give a list, or the function that makes"),
        ({"quote": in_turn(1.0, TimeoutError)}, "Pricing.quote: .*TimeoutError.* an exception object"),
    ],
)
def test_an_answer_that_the_service_could_not_give_is_refused(answers: dict[str, Any], message: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=message):
        fake(Pricing, **answers)


@pytest.mark.promise("P6.11")
def test_a_recorder_lists_what_came_and_stores_no_more_than_its_capacity(node: tw.Node) -> None:
    with Recorder(node, "orders.*", capacity=3) as orders:
        for number in range(3):
            assert node.publish(f"orders.{number}", number, headers={"v": str(number)}) == 1
        assert node.publish("orders.eu.created", 4) == 0
        assert [(one.message, one.headers) for one in orders.sync.next(2)] == [(0, {"v": "0"}), (1, {"v": "1"})]
        with pytest.raises(AssertionError, match=r"orders\.\*: 1 of 2 came in 0 s: orders\.2 2"):
            orders.sync.next(2, timeout=0)
        assert orders.sync.next()[0].subject == "orders.2"
        node.publish("orders.4", 4)
        with pytest.raises(AssertionError, match=r"0 of 1 .* and 1 over its capacity=3"):
            orders.sync.next()
    assert node.publish("orders.5", 5) == 0


class Counter(tw.Service):
    def __init__(self) -> None:
        self.counts: collections.Counter[int] = collections.Counter()

    @tw.method
    def add(self, number: int) -> int:
        self.counts[number] += 1
        return number

    @tw.method
    def seen(self) -> dict[int, int]:
        return dict(self.counts)


async def test_a_node_whose_links_are_disturbed_gets_each_answer_once(tidewire_cluster: Cluster) -> None:
    quick = {"link_heartbeat_ms": 400, "link_backoff_max_ms": 50}
    environment = {f"TIDEWIRE_LINKS__{name.upper()}": str(value) for name, value in quick.items()}
    server, link = tidewire_cluster.serve("test_testing:Counter", **environment), tidewire_cluster.link()
    async with tw.Node(link.url, config={"links": quick}) as node:
        counter = node.client(Counter)
        assert await counter.add(0) == 0
        link.delay(0.04)
        since = perf_counter()
        assert await counter.add(1) == 1
        assert perf_counter() - since > 0.08
        link.heal()

        # Shorter than two heartbeats: nobody sees that the link is lost.
        link.partition()
        held = asyncio.ensure_future(counter.add(2))
        assert await asyncio.wait({held}, timeout=0.02) == (set(), {held})
        link.heal()
        assert await held == 2

        with logged() as lines:
            link.partition()
            await fails(counter.add(3), tw.LinkLost)
            await lost(node)
            assert "nothing was heard" in await asyncio.to_thread(lines.get, timeout=PATIENCE_S)
        link.heal()
        await joined(node)
        await node.until(lambda now: "counter" in now["links"]["services"], PATIENCE_S)
        assert await counter.add(4) == 4

        server.link.drop()
        await node.until(lambda now: "counter" not in now["links"]["services"], PATIENCE_S)
        with pytest.raises(tw.NoResponders):
            await counter.add(5)
        server.link.heal()
        await node.until(lambda now: "counter" in now["links"]["services"], PATIENCE_S)
        assert await counter.add(6) == 6
        seen = await counter.seen()
    assert seen | {3: seen.get(3, 1)} == dict.fromkeys((0, 1, 2, 3, 4, 6), 1)
