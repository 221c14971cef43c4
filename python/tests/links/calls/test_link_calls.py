"""Calls over a link as asyncio sees them: they begin when somebody waits, and can be gathered, made
tasks of and cancelled.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest
import tidewire as tw
from link_programs import until_served

TIMEOUT_S = 30.0

_mark: ContextVar[int | None] = ContextVar("mark", default=None)


class Workshop(tw.Service):
    """Counts what begins, and keeps what is to be kept waiting."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.begun: asyncio.Queue[int] = asyncio.Queue(1_000)
        self.cancelled: asyncio.Queue[int] = asyncio.Queue(1_000)
        self.here: set[int] = set()
        self.all_here = asyncio.Event()

    @tw.method
    async def echo(self, value: Any) -> Any:
        """Give it back."""
        self.begun.put_nowait(0)
        return value

    @tw.method
    async def stay(self, number: int) -> None:
        """Stay until cancelled."""
        self.begun.put_nowait(number)
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.put_nowait(number)

    @tw.method
    async def meet(self, number: int, wanted: int) -> int:
        """Wait until so many calls are here at once."""
        self.here.add(number)
        if len(self.here) == wanted:
            self.all_here.set()
        await self.all_here.wait()
        return number

    @tw.method
    async def mark(self, value: int) -> int | None:
        """Set a variable, and give what it was before."""
        before = _mark.get()
        _mark.set(value)
        if value % 2:
            await asyncio.sleep(0)
            assert _mark.get() == value
        return before

    @tw.method
    async def hurry(self) -> str:
        """Look at the task, and at the call."""
        async with asyncio.timeout(TIMEOUT_S):  # noqa: ASYNC100
            return f"{asyncio.current_task() is not None} {tw.context().node} {tw.context().method}"

    @tw.method
    async def where(self) -> str:
        """Say which instance this is."""
        return self.name

    @tw.method
    async def fail(self) -> None:
        """Fail."""
        raise KeyError("nothing")


@asynccontextmanager
async def joined() -> AsyncIterator[tuple[tw.Node, Workshop, Any]]:
    workshop = Workshop()
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="server") as server, tw.Node(url, name="caller") as caller:
            await server.serve(workshop, name="workshop")
            await until_served(caller, "workshop")
            yield caller, workshop, caller.client("workshop")


async def test_a_call_begins_when_it_is_made_a_future_and_not_before() -> None:
    async with joined() as (_, workshop, client):
        call = client.echo(1)
        assert await client.echo(2) == 2
        assert workshop.begun.qsize() == 1
        future = asyncio.ensure_future(call)
        await asyncio.wait_for(workshop.begun.get(), TIMEOUT_S)
        await asyncio.wait_for(workshop.begun.get(), TIMEOUT_S)
        assert await asyncio.wait_for(future, TIMEOUT_S) == 1


async def test_calls_that_failed_or_were_given_up_count_no_longer_against_their_instance() -> None:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="a") as a, tw.Node(url, name="b") as b, tw.Node(url, name="caller") as caller:
            workshops = Workshop("a"), Workshop("b")
            for node, workshop in zip((a, b), workshops, strict=True):
                await node.serve(workshop, name="workshop", instance=workshop.name)
            await until_instances(caller, 2)
            client, busy = caller.client("workshop"), workshops[0]
            # The first call learns what the later ones know.
            for _ in range(2):
                call = asyncio.create_task(client.with_(instance="a").stay(7))
                assert await asyncio.wait_for(busy.begun.get(), TIMEOUT_S) == 7
                # Calls avoid the instance that is busy.
                assert [await client.where() for _ in range(4)] == ["b"] * 4
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert await asyncio.wait_for(busy.cancelled.get(), TIMEOUT_S) == 7
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.with_(instance="a").stay(8), 0.2)
                assert await asyncio.wait_for(busy.cancelled.get(), TIMEOUT_S) == 8
                await asyncio.wait_for(busy.begun.get(), TIMEOUT_S)
                at_a = client.with_(instance="a")
                first, failed, third = await asyncio.gather(
                    at_a.where(), at_a.fail(), at_a.where(), return_exceptions=True
                )
                assert (first, third) == ("a", "a") and isinstance(failed, KeyError)
                assert sorted([await client.where() for _ in range(4)]) == ["a", "a", "b", "b"]


def forget(method: Callable[[int], object]) -> None:
    method(1)
    gc.collect()


@pytest.mark.promise("P16.23")
async def test_a_call_that_nobody_awaited_is_told_of() -> None:
    async with joined() as (_, workshop, client):
        with pytest.warns(RuntimeWarning, match="workshop.echo was never awaited"):
            forget(client.echo)
        client.echo(1).close()
        assert workshop.begun.qsize() == 0


async def test_calls_that_wait_are_at_work_at_once_among_others_that_do_not() -> None:
    async with joined() as (_, _, client):
        for _ in range(3):
            assert await client.echo(0) == 0
        calls = [client.meet(number, 100) if number % 2 else client.echo(number) for number in range(200)]
        assert await asyncio.wait_for(asyncio.gather(*calls), TIMEOUT_S) == list(range(200))


@pytest.mark.promise("P13.25")
async def test_a_context_variable_of_a_handler_ends_with_its_call() -> None:
    async with joined() as (_, _, client):
        assert await asyncio.gather(*map(client.mark, range(20))) == [None] * 20
        assert await client.mark(1) is None


async def test_a_handler_runs_in_a_task_and_sees_its_call_from_its_first_step_on() -> None:
    async with joined() as (_, _, client):
        assert await asyncio.gather(client.hurry(), client.hurry()) == ["True caller hurry"] * 2


async def test_a_client_goes_by_another_way_when_one_is_served_or_gone() -> None:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="a") as a, tw.Node(url, name="b") as b, tw.Node(url, name="caller") as caller:

            async def where() -> str:
                return "a"

            async def elsewhere() -> str:
                return "b"

            first = await a.serve({"where": where}, name="place")
            await until_instances(caller, 1)
            client = caller.client("place")
            assert [await client.where() for _ in range(3)] == ["a"] * 3
            await b.serve({"where": elsewhere}, name="place")
            await until_instances(caller, 2)
            assert set(await asyncio.gather(*(client.where() for _ in range(10)))) == {"a", "b"}
            await first.stop()
            await until_instances(caller, 1)
            assert [await client.where() for _ in range(3)] == ["b"] * 3


async def until_instances(node: tw.Node, count: int) -> None:
    await node.until(lambda now: list(now["links"]["services"].values()) == [count], TIMEOUT_S)


async def test_a_service_that_was_called_and_stopped_leaves_nothing_behind() -> None:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="caller") as caller:
            workshop, client = Workshop(), caller.client("workshop")
            async with tw.Node(url, name="server") as server:
                served = await server.serve(workshop, name="workshop")
                await until_instances(caller, 1)
                assert await asyncio.gather(*map(client.echo, range(5))) == list(range(5))
                waiting = asyncio.ensure_future(client.stay(1))
                await asyncio.wait_for(until_begun(workshop, 1), TIMEOUT_S)
                waiting.cancel()
                assert await asyncio.wait_for(workshop.cancelled.get(), TIMEOUT_S) == 1
                await served.stop()
            left = [weakref.ref(workshop), weakref.ref(server)]
            del workshop, server, served
            # The thread of links has let go of them once it has done something else.
            async with tw.Node(url, name="next"):
                pass
            gc.collect()
            assert [one() for one in left] == [None, None]


async def until_begun(workshop: Workshop, number: int) -> None:
    while await workshop.begun.get() != number:
        pass


WHO: ContextVar[str] = ContextVar("who", default="nobody")


class NodeStarter(tw.Service):
    """Starts a node in a call, and says in whose variables it is called."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.node: tw.Node | None = None

    @tw.method
    async def begin(self) -> None:
        WHO.set("the call that began the node")
        node = self.node = tw.Node(self.url, name="inner")
        await node.__aenter__()

        async def receive(message: object, ctx: tw.Context) -> Any:
            # An agent of the node, which has the id of the actor that runs this call.
            return await helper.ask(WHO.get()), None if ctx.sender is None else ctx.sender.id

        helper = node.spawn(lambda message: message)
        await node.subscribe("inner.ask", node.spawn(receive))
        await node.serve({"who": who}, name="inner")


async def who() -> str:
    return WHO.get()


@pytest.mark.promise("P13.25")
async def test_a_node_that_is_started_in_a_handler_runs_nothing_in_its_variables() -> None:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        desk = NodeStarter(url)
        await hub.serve(desk, name="desk")
        async with tw.Node(url, name="outer") as outer:
            # An actor whose handler begins the node has the same id as one of that node.
            async def begin(message: object) -> None:
                await outer.client("desk").begin()

            await outer.spawn(begin).ask(None)
            try:
                for _ in range(3):
                    assert await outer.request("inner.ask", None) == ("nobody", None)
                    assert await hub.client("inner").who() == "nobody"
                    assert await outer.client("inner").who() == "nobody"
            finally:
                assert desk.node is not None
                await desk.node.stop()
