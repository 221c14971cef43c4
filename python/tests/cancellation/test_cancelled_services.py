"""Cancellation of the calls of commands, services with one active instance, durable handlers and
durable agents at each of their waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from cancel_support import PATIENCE, Story, cancel_each_wait
from home_support import nodes

LONG = 600.0
"""A time that is over long after the story."""


# Commands


class Books(tw.Service):
    """A command that waits for nothing, and one that waits for ever."""

    @tw.command(exclusive="key", concurrency=4)
    async def index(self, number: int, progress: tw.Progress) -> int:
        await progress(0.5)
        return number * 2

    @tw.command
    async def hang(self) -> None:
        await asyncio.Event().wait()


async def command(one: tw.Node, other: tw.Node, name: str) -> Story:
    async def started() -> None:
        run = await other.client(Books).index.start(7, key=name, id=name)
        assert await run.result(PATIENCE) == 14
        assert (await run.info()).stage == "succeeded"

    yield started()
    await started()


async def command_cancel(one: tw.Node, other: tw.Node, name: str) -> Story:
    run = await other.client(Books).hang.start(id=name)
    yield run.cancel()
    await run.cancel()
    with pytest.raises(tw.CallCancelled):
        await run.result(PATIENCE)


# Services of which one is active


class Matching(tw.Service):
    @tw.method(idempotent=True)
    async def who(self) -> int:
        return 1


async def single_active(one: tw.Node, other: tw.Node, name: str) -> Story:
    served: list[tw.SingleActive] = []

    async def active() -> None:
        served.append(one.serve(Matching(), name=name, active="single", lease=LONG))
        await served[0]
        await served[0].active(PATIENCE)

    yield active()
    for one_served in served:
        await one_served.stop()
    second = await other.serve(Matching(), name=name, active="single", lease=LONG)
    await second.active(PATIENCE)
    assert await other.client(Matching, name).who() == 1
    await second.stop()


async def single_stop(one: tw.Node, other: tw.Node, name: str) -> Story:
    served = await one.serve(Matching(), name=name, active="single", lease=LONG)
    await served.active(PATIENCE)
    cancelled = yield served.stop()
    if cancelled:
        assert (await served.stop()).balanced
    second = await other.serve(Matching(), name=name, active="single", lease=LONG)
    await second.active(PATIENCE)
    assert await other.client(Matching, name).who() == 1
    await second.stop()


# Durable handlers and agents


def billing_service(name: str) -> Any:
    """A service whose durable handler collects its events in ``seen``."""

    class Billing(tw.Service):
        def __init__(self) -> None:
            self.seen: asyncio.Queue[int] = asyncio.Queue(10)

        @tw.on(f"{name}.*", durable="billing", start="all", ack_wait=LONG)
        async def on_made(self, number: int) -> None:
            self.seen.put_nowait(number)

    return Billing()


async def durable_awaited(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream, billing = await one.stream(name, subjects=[f"{name}.>"]), billing_service(name)
    served = one.serve(billing, name=name)

    async def awaited() -> None:
        await served

    yield awaited()
    await served
    await stream.publish(f"{name}.made", 1)
    assert await asyncio.wait_for(billing.seen.get(), PATIENCE) == 1
    await served.stop()


async def durable_stop(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream = await one.stream(name, subjects=[f"{name}.>"])
    inside, going_on, seen = asyncio.Event(), asyncio.Event(), []

    class Billing(tw.Service):
        @tw.on(f"{name}.*", durable="billing", start="all", ack_wait=LONG)
        async def on_made(self, number: int) -> None:
            inside.set()
            await going_on.wait()
            seen.append(number)

    served = await one.serve(Billing(), name=name)
    await stream.publish(f"{name}.made", 1)
    await inside.wait()
    asyncio.get_running_loop().call_later(0.01, going_on.set)
    yield served.stop()
    assert (await served.stop()).balanced
    assert seen == [1]


async def single_stop_busy(one: tw.Node, other: tw.Node, name: str) -> Story:
    inside, going_on = asyncio.Event(), asyncio.Event()

    class Slow(tw.Service):
        @tw.method
        async def work(self) -> bool:
            inside.set()
            await going_on.wait()
            return served.fence > 0

    served = await one.serve(Slow(), name=name, active="single", lease=LONG)
    await served.active(PATIENCE)
    if other is not one:
        await other.until(lambda now: now["links"]["services"].get(name), PATIENCE)
    working = asyncio.ensure_future(other.client(Slow, name).work())
    await inside.wait()
    cancelled = yield _stop_at_work(served, going_on)
    going_on.set()
    if cancelled:
        assert (await served.stop()).balanced
    assert await working, "a call that came is finished under the lease"
    second = await other.serve(Slow(), name=name, active="single", lease=LONG)
    await second.active(PATIENCE)
    await second.stop()


async def _stop_at_work(served: Any, going_on: asyncio.Event) -> None:
    asyncio.get_running_loop().call_later(0.01, going_on.set)
    await served.stop()


async def durable_served(one: tw.Node, other: tw.Node, name: str) -> Story:
    stream, billing = await one.stream(name, subjects=[f"{name}.>"]), billing_service(name)
    served: list[tw.Served] = []

    async def serving() -> None:
        served.append(one.serve(billing, name=name))
        await served[0]
        await stream.publish(f"{name}.made", 1, id="1")
        await billing.seen.get()
        await served[0].stop()

    yield serving()
    for each in served:
        await each.stop()
    while not billing.seen.empty():
        billing.seen.get_nowait()
    again = await other.serve(billing, name=name)
    await stream.publish(f"{name}.made", 2)
    while await asyncio.wait_for(billing.seen.get(), PATIENCE) != 2:
        pass
    await again.stop()


async def durable_agent(one: tw.Node, other: tw.Node, name: str) -> Story:
    seen: asyncio.Queue[int] = asyncio.Queue(10)

    async def note(number: int) -> None:
        seen.put_nowait(number)

    agents: list[Any] = []

    async def agent_life() -> None:
        agents.append(one.agent(note, id=name, durable="inbox"))
        await agents[0].active(PATIENCE)
        await agents[0].send(1, to=name, durable=True)
        await seen.get()
        await agents[0].stop()

    yield agent_life()
    for agent in agents:
        await agent.stop()
    again = other.agent(note, id=name, durable="inbox")
    await again.active(PATIENCE)
    await again.send(2, to=name, durable=True)
    while await asyncio.wait_for(seen.get(), PATIENCE) != 2:
        pass
    await again.stop()


HOME_CASES = [
    command,
    command_cancel,
    single_active,
    single_stop,
    single_stop_busy,
    durable_awaited,
    durable_stop,
    durable_served,
    durable_agent,
]

ROUNDS = {single_active: 12, single_stop: 12, single_stop_busy: 12, durable_stop: 12, durable_agent: 12, command: 12}
"""Of cases whose work is done by other tasks: in how many rounds of the loop they are cancelled."""


@pytest.mark.promise("P17.102", "P17.103", "P17.118")
@pytest.mark.parametrize("case", HOME_CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("kind", ["folder", "hub", "nats"])
async def test_durable_services_can_be_cancelled_at_each_wait(
    kind: str, case: Callable[..., Story], tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        served = await one.serve(Books())
        await cancel_each_wait(lambda name: case(one, other, name), ROUNDS.get(case, 0))
        await served.stop()


@pytest.mark.parametrize("kind", ["folder", "hub", "nats"])
async def test_a_command_that_meets_a_stop_of_its_worker_goes_to_the_next_one_at_once(
    kind: str, tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path) as (one, other):
        for rounds in range(15):
            served = await one.serve(Books(), name="books", instance="books")
            run = await other.client(Books, "books").index.start(7, key=str(rounds))
            for _ in range(rounds):
                await asyncio.sleep(0)
            await served.stop(drain=False)
            served = await one.serve(Books(), name="books", instance="books")
            # A token that is lost comes again after five seconds.
            assert await run.result(4.0) == 14
            await served.stop()
