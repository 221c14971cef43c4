"""Services: instances, their end, and how much they take."""

from __future__ import annotations

import asyncio

import pytest
import tidewire as tw
from service_support import PATIENCE, Hanging, Pricing, soon

# Instances and their end


async def test_several_instances_share_the_calls_and_one_that_stops_is_left_out(node: tw.Node) -> None:
    one, other = node.serve(Pricing(), instance="one"), node.serve(Pricing(), instance="other")
    pricing = node.client(Pricing)
    for _ in range(10):
        await pricing.quote("X")
    assert [served.statistics()["calls"] for served in (one, other)] == [5, 5]
    assert (await node.services())[0].instances == ("one", "other")
    ledger = await one.stop()
    assert (ledger.handled, ledger.balanced) == (5, True)
    assert await one.stop() is ledger
    await pricing.quote("X")
    assert other.statistics()["calls"] == 6
    with pytest.raises(tw.NoResponders, match="'one' is not among its instances"):
        await pricing.with_(instance="one").quote("X")


async def test_calls_that_had_begun_are_finished_at_a_stop(node: tw.Node) -> None:
    class Gate(tw.Service):
        def __init__(self) -> None:
            self.inside, self.open = asyncio.Event(), asyncio.Event()

        @tw.method
        async def through(self) -> str:
            self.inside.set()
            await self.open.wait()
            return "through"

    gate = Gate()
    served = node.serve(gate)
    call = asyncio.create_task(node.client(Gate).through())
    await soon(gate.inside.wait())
    stopping = asyncio.create_task(served.stop())
    # Its first step leaves the registry.
    await asyncio.sleep(0)
    assert not await node.services()
    with pytest.raises(tw.NoResponders, match="gate: nobody serves it"):
        await node.client(Gate).through()
    gate.open.set()
    assert await soon(call) == "through"
    assert (await soon(stopping)).handled == 1


async def test_calls_that_wait_at_an_instance_that_stops_go_to_another(node: tw.Node) -> None:
    full, free = Hanging(), Hanging()
    one = node.serve(full, instance="one", concurrency=2)
    calls = node.client(Hanging)
    hung = [asyncio.create_task(calls.with_(timeout=PATIENCE).hang()) for _ in range(2)]
    await soon(full.inside.wait())
    assert one.statistics()["in_flight"] == 2
    waiting = asyncio.create_task(calls.ping())
    await asyncio.sleep(0)
    assert one.statistics()["waiting"] == 1
    node.serve(free, instance="other")
    stopping = asyncio.create_task(one.stop(drain=False))
    assert await soon(waiting) == "pong"
    for task in hung:
        task.cancel()
    await soon(asyncio.gather(*hung, return_exceptions=True))
    assert (await soon(stopping)).balanced


async def test_a_service_ends_with_its_node() -> None:
    async with tw.Node() as node:
        served = node.serve(Pricing())
        pricing = node.client(Pricing)
        await pricing.quote("X")
    assert node.ledger is not None
    assert node.ledger.balanced
    assert not await node.services()
    with pytest.raises(tw.NodeStopped):
        await pricing.quote("X")
    with pytest.raises(tw.NodeStopped):
        node.serve(Pricing())
    with pytest.raises(tw.NodeStopped):
        node.client(Pricing)
    assert (await served.stop()).balanced


async def test_callers_on_other_loops_and_threads_are_served_alike(node: tw.Node) -> None:
    node.serve(Pricing())
    pricing = node.client(Pricing)

    async def many() -> float:
        return sum([(await pricing.quote("X", n)).price for n in range(50)])

    def blocking() -> float:
        return sum(pricing.sync.quote("X", n).price for n in range(50))

    jobs = [asyncio.to_thread(asyncio.run, many()) for _ in range(3)]
    jobs += [asyncio.to_thread(blocking) for _ in range(3)]
    assert await soon(asyncio.gather(*jobs)) == [2450.0] * 6


async def test_a_method_does_not_wait_for_the_end_of_its_own_instance(node: tw.Node) -> None:
    class Ending(tw.Service):
        served: tw.Served

        @tw.method
        async def end(self) -> None:
            await self.served.stop()

        @tw.method
        def end_plainly(self) -> None:
            self.served.sync.stop()

    ending = Ending()
    ending.served = node.serve(ending)
    with pytest.raises(tw.AskCycle, match=r"ending\.end would wait for the end of its own instance"):
        await node.client(Ending).end()
    with pytest.raises(tw.AskCycle):
        await node.client("ending").end_plainly()
    assert (await ending.served.stop()).balanced
