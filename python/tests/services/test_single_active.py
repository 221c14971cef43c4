"""Services of which one instance is active at a time, ``serve(..., active="single")``: in a folder,
at a hub and on NATS.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import PATIENCE, nodes, release
from link_processes import Program, Programs
from link_stories import said

LONG = 600.0
"""A lease that is over long after the story: what happens before is not by its end."""


class Matching(tw.Service):
    def __init__(self, name: str) -> None:
        self.name = name
        self.inside, self.going_on = asyncio.Event(), asyncio.Event()

    @tw.method(idempotent=True)
    async def who(self) -> tuple[str, int]:
        return self.name, tw.context().fence

    @tw.method
    async def hang(self, patient: bool) -> str:
        self.inside.set()
        if not patient:
            await asyncio.Event().wait()
        await self.going_on.wait()
        return self.name

    @tw.method
    async def count(self, to: int) -> Any:
        for number in range(to):
            yield self.name, number


class Relay(tw.Service):
    """Calls with as many headers as are allowed, besides those that it inherits."""

    def __init__(self, node: tw.Node) -> None:
        self.node = node

    @tw.method
    async def who(self) -> tuple[str, int]:
        found: tuple[str, int] = await self.node.client(Matching).with_(headers={f"h{n}": "" for n in range(56)}).who()
        return found


@pytest.mark.promise("P17.52", "P17.54")
async def test_another_is_active_as_soon_as_one_is_stopped(homes: list[tw.Node]) -> None:
    one, two = homes
    first, second = Matching("first"), Matching("second")
    served = await one.serve(first, active="single", lease=LONG)
    fence = await served.active(PATIENCE)
    standby = await two.serve(second, active="single", lease=LONG)
    assert served.is_active and not standby.is_active and served.fence == fence
    with pytest.raises(tw.LeaseLost):
        standby.fence  # noqa: B018
    caller, of_first = two.client(Matching), one.client(Matching)
    assert await caller.who() == ("first", fence)
    assert [item async for item in caller.count(2)] == [("first", 0), ("first", 1)]
    under_way = asyncio.ensure_future(of_first.hang(True))
    await asyncio.wait_for(first.inside.wait(), PATIENCE)
    stopping = asyncio.ensure_future(served.stop())
    await one.until(lambda now: now["links"]["services"]["matching"] == 2, PATIENCE)
    await two.serve(Relay(two))
    relay = two.client(Relay).with_(headers={"traceparent": f"00-{'4b' * 16}-{'2a' * 8}-01", "baggage": "shop=north"})
    meanwhile = [asyncio.ensure_future(one.who()) for one in (relay, caller, relay, caller)]
    first.going_on.set()
    assert await under_way == "first", "calls that came are finished"
    assert (await stopping).balanced
    answers = await asyncio.wait_for(asyncio.gather(*meanwhile), PATIENCE)
    assert await standby.active(PATIENCE) > fence
    assert set(answers) == {("second", standby.fence)}, "calls waited until somebody was active"
    assert await two.client(Matching).who() == ("second", standby.fence)
    await two.until(lambda now: now["links"]["services"]["matching"] == 2, PATIENCE)
    assert [info.instances for info in await two.services() if info.name == "matching"] == [
        (f"~{standby.instance}", standby.instance)
    ]


@pytest.mark.promise("P17.58")
async def test_an_instance_without_its_lease_answers_nothing_and_stands_by(home: tw.Node, virtual_time: None) -> None:
    matching = Matching("one")
    served = await home.serve(matching, active="single", lease=3.0)
    fence = await served.active(PATIENCE)
    under_way = asyncio.ensure_future(home.client(Matching).hang(False))
    await asyncio.wait_for(matching.inside.wait(), PATIENCE)
    assert await release(home, "active.matching", fence)
    with pytest.raises(tw.ActorStopped):
        await asyncio.wait_for(under_way, PATIENCE)
    # A call that comes while nobody is active waits until somebody is.
    name, newer = await home.client(Matching).with_(timeout=PATIENCE).who()
    assert name == "one" and newer > fence


async def test_handlers_of_durable_events_run_at_the_active_one_alone(homes: list[tw.Node]) -> None:
    handled: asyncio.Queue[tuple[str, int, int]] = asyncio.Queue(1_000)

    class Ledger(tw.Service):
        def __init__(self, name: str) -> None:
            self.name = name

        @tw.on("orders.*", durable="ledger", start="all")
        async def on_order(self, number: int, call: tw.CallContext) -> None:
            await handled.put((self.name, number, call.fence))

    one, two = homes
    orders = await one.stream("orders", subjects=["orders.>"])
    first = await one.serve(Ledger("first"), active="single", lease=LONG)
    fence = await first.active(PATIENCE)
    second = await two.serve(Ledger("second"), active="single", lease=LONG)
    for number in range(50):
        await orders.publish("orders.x", number)
    assert [await asyncio.wait_for(handled.get(), PATIENCE) for _ in range(50)] == [
        ("first", number, fence) for number in range(50)
    ]
    await first.stop()
    await second.active(PATIENCE)
    await orders.publish("orders.x", 50)
    assert await asyncio.wait_for(handled.get(), PATIENCE) == ("second", 50, second.fence)
    assert handled.empty()


HOLDER = """
import asyncio, contextlib, sys
import tidewire as tw
from test_single_active import Matching

class Holder(Matching):
    @tw.method
    async def hang(self, patient: bool) -> str:
        if not patient:
            return await super().hang(patient)
        print("active", tw.context().fence, flush=True)
        try:
            return await super().hang(patient)
        finally:
            print("lost", flush=True)

async def main():
    async with tw.Node(sys.argv[1], name="holder") as node:
        served = await node.serve(Holder("holder"), name="matching", active="single", lease=float(sys.argv[2]))
        own = node.client("matching").with_(instance=served.instance, timeout=600.0)
        while True:
            await served.active()
            with contextlib.suppress(tw.TidewireError):
                await own.hang(True)

asyncio.run(main())
"""


def holder(started: Programs, url: str | None, lease: float) -> Program:
    assert url is not None
    return started.run("-c", HOLDER, url, str(lease), env={"PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.promise("P17.55")
@pytest.mark.parametrize(("kind", "lease"), [("hub", LONG), ("nats", 1.5)])
async def test_another_is_active_when_the_process_of_one_is_killed(
    kind: str, lease: float, started: Programs, tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path) as (one, two):
        doomed = holder(started, one.url, lease)
        fence = int(await said(doomed, "active"))
        standby = await one.serve(Matching("standby"), active="single", lease=lease)
        client = (two if kind == "hub" else one).client(Matching).with_(timeout=PATIENCE)
        if kind == "hub":
            await two.until(lambda now: now["links"]["services"].get("matching", 0) == 3, PATIENCE)
            assert await client.who() == ("holder", fence)
            # Of a call that was begun it is not known whether it was handled; an idempotent one is
            # made again.
            begun = asyncio.ensure_future(client.hang(False))
            calls = [asyncio.ensure_future(client.who()) for _ in range(20)]
        doomed.kill()
        assert (await client.who())[0] == "standby"
        assert await standby.active(PATIENCE) > fence
        if kind == "hub":
            with pytest.raises(tw.LinkLost):
                await begun
            assert {name for name, _ in await asyncio.gather(*calls)} <= {"holder", "standby"}


@pytest.mark.promise("P17.53", "P17.132")
@pytest.mark.parametrize("kind", ["hub", "nats"])
async def test_a_process_that_was_stopped_for_a_while_does_not_take_itself_for_active(
    kind: str, started: Programs, tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path, 1) as (node,):
        frozen = holder(started, node.url, 1.0)
        fence = int(await said(frozen, "active"))
        matching = Matching("standby")
        matching.going_on.set()
        standby = await node.serve(matching, active="single", lease=LONG)
        frozen.halt()
        assert await standby.active(PATIENCE) > fence
        # The hub may believe that the other one is active still.
        calls = node.client(Matching).with_(timeout=PATIENCE)
        assert [await calls.hang(True) for _ in range(4)] == ["standby"] * 4
        frozen.signal(signal.SIGCONT)
        assert await asyncio.to_thread(frozen.line) == "lost"
        assert standby.is_active
        await standby.stop()
        await said(frozen, "active")


async def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    async with tw.Node() as node:
        with pytest.raises(tw.InvalidArgument, match="data: this node has no place for streams"):
            node.serve(Matching("one"), active="single")
    async with tw.Node(data=tmp_path) as node:
        for options, said in (
            ({"active": "double"}, "active: 'double' is not allowed"),
            ({"active": "single", "lease": 0}, "lease: 0 is not allowed: give 0.2 to 3,600 seconds"),
            ({"instance": "~one"}, "ids that begin with '~' belong to standby instances"),
        ):
            with pytest.raises(tw.InvalidArgument, match=said):
                node.serve(Matching("one"), **options)
        await node.serve(Matching("all"))
        with pytest.raises(tw.InvalidArgument, match="'matching' has none: it is for services with one active"):
            await node.client(Matching).who()


def test_a_plain_thread_serves_one(tmp_path: Path) -> None:
    with tw.Node(data=tmp_path) as node:
        served = node.serve(Matching("one"), active="single")
        assert served.sync.active(PATIENCE) == served.fence
        assert node.client(Matching).sync.who() == ("one", served.fence)
        assert served.sync.stop().balanced and not served.is_active
