"""A node that is idle, and the end of its block: what its parts send each other arrives first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import tidewire as tw
from link_processes import PATIENCE_S, Programs

LETTERS = 200


class Stage:
    """Passes on what it gets, as a plain handler or a coroutine."""

    def __init__(self, node: tw.Node, kind: str, following: Any) -> None:
        async def later(message: int) -> None:
            await asyncio.sleep(0)
            await following(message)

        def now(message: int) -> None:
            # A following handler takes coroutines only where it is awaited.
            following(message)

        self.ref = node.spawn(later if kind == "coroutine" else now, mailbox=LETTERS)


def pipeline(node: tw.Node, stored: list[int], kind: str) -> tw.ActorRef:
    """Three stages; the last one is the first that a stop in the order of their ids would close."""

    async def keep(message: int) -> None:
        stored.append(message)

    last = node.spawn(keep if kind == "coroutine" else stored.append, mailbox=LETTERS)
    middle = Stage(node, kind, last.send if kind == "coroutine" else last.tell).ref
    return Stage(node, kind, middle.send if kind == "coroutine" else middle.tell).ref


@pytest.mark.promise("P8.13")
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_pipeline_is_processed_at_the_end_of_the_block(kind: str) -> None:
    stored: list[int] = []
    async with tw.Node() as node:
        first = pipeline(node, stored, kind)
        for number in range(LETTERS):
            await first.send(number)
    assert stored == list(range(LETTERS))
    assert node.ledger is not None
    assert (node.ledger.handled, node.ledger.dead_lettered) == (3 * LETTERS, 0)


@pytest.mark.promise("P8.21")
async def test_an_idle_node_has_processed_its_messages(node: tw.Node) -> None:
    stored: list[int] = []
    first = pipeline(node, stored, "coroutine")
    await node.idle(PATIENCE_S)
    for rounds in range(1, 20):
        for number in range(10):
            await first.send(number)
        await node.idle(PATIENCE_S)
        assert len(stored) == 10 * rounds


@pytest.mark.promise("P8.18")
def test_an_idle_node_has_processed_work_between_pools_and_actors() -> None:
    stored: list[int] = []

    async def story() -> None:
        async with tw.Node() as node:
            keep = node.spawn(stored.append, mailbox=LETTERS)
            again = node.pool(lambda number: keep.tell(number), workers=2)

            async def submit(number: int) -> None:
                # Nobody waits for the task.
                again.submit(number)

            first = node.spawn(submit, mailbox=LETTERS)
            outer = node.pool(lambda number: first.tell(number), workers=2)
            for number in range(LETTERS):
                outer.submit(number)

    asyncio.run(story())
    assert sorted(stored) == list(range(LETTERS))


@pytest.mark.promise("P8.18")
async def test_an_idle_node_has_processed_retries_of_its_agents(node: tw.Node) -> None:
    tried: list[int] = []

    def fragile(message: str, ctx: Any = None) -> None:
        tried.append(len(tried))
        if len(tried) < 3:
            raise ValueError("not yet")

    agent = node.agent(fragile, id="fragile", retry=tw.Retry(5, backoff_ms=20))
    await node.agent(lambda _: None, id="sender").send("hello", to="fragile")
    await node.idle(PATIENCE_S)
    assert len(tried) == 3
    assert agent.statistics()["waiting_again"] == 0


@pytest.mark.promise("P8.20")
async def test_an_idle_wait_that_times_out_names_the_busy_parts(node: tw.Node) -> None:
    gate = asyncio.Event()

    async def slow(_: object) -> None:
        await gate.wait()

    ref = node.spawn(slow, name="slow")
    ref.tell(1)
    pool_gate = threading.Event()
    pool = node.pool(lambda _: pool_gate.wait(PATIENCE_S), workers=1, name="deep")
    with pytest.raises(TimeoutError, match=r"not idle after 0.05 s: slow \(#\d+\)"):
        await node.idle(0.05)
    gate.set()
    submitted = asyncio.ensure_future(pool.submit(1))
    with pytest.raises(TimeoutError, match="pool 'deep'"):
        await node.idle(0.05)
    pool_gate.set()
    await submitted
    await node.idle(PATIENCE_S)


@pytest.mark.promise("P8.22")
async def test_waiting_where_it_never_ends_is_refused_at_once(node: tw.Node) -> None:
    with pytest.raises(tw.InvalidArgument, match="handles nothing"):
        await asyncio.to_thread(tw.Node().sync.idle, 1)

    async def own(what: str) -> str:
        with pytest.raises(tw.AskCycle, match="would wait for itself"):
            await (node.idle(PATIENCE_S) if what == "idle" else node.stop(PATIENCE_S))
        return "refused"

    def plain(_: object) -> str:
        with pytest.raises(tw.AskCycle, match="would wait for itself"):
            node.sync.idle(PATIENCE_S)
        return "refused"

    ref = node.spawn(own, name="own")
    assert [await ref.ask("idle"), await ref.ask("stop"), await node.spawn(plain).ask(1)] == ["refused"] * 3
    for wrong in (-1, "1", float("nan")):
        with pytest.raises(tw.InvalidArgument, match="timeout"):
            await node.idle(wrong)  # type: ignore[arg-type]


@pytest.mark.promise("P8.19")
async def test_a_repeating_timer_does_not_keep_a_node_from_its_end(node: tw.Node) -> None:
    beats = []
    node.schedule(0.001, node.spawn(beats.append), "beat", every=0.001)
    await node.idle(PATIENCE_S)


@pytest.mark.promise("P8.23")
async def test_a_stop_that_is_cancelled_has_stopped_the_node_all_the_same() -> None:
    node = tw.Node()
    await node.__aenter__()
    gate = asyncio.Event()

    async def slow(_: object) -> None:
        await gate.wait()

    ref = node.spawn(slow)
    ref.tell(1)
    stopping = asyncio.ensure_future(node.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    for refused in (lambda: node.spawn(slow), lambda: node.publish("a.b", 1), lambda: node.pool(print)):
        with pytest.raises(tw.NodeStopped):
            refused()
    gate.set()
    assert (await node.stop()).handled == 1
    assert await node.stop() is node.ledger


class Store(tw.Service):
    """Keeps what it is given, and gives a stream that has no end."""

    def __init__(self) -> None:
        self.kept: list[int] = []

    @tw.method
    async def keep(self, number: int) -> int:
        self.kept.append(number)
        return number

    @tw.method
    async def count(self) -> AsyncIterator[int]:
        number = 0
        while True:
            yield number
            number += 1


@pytest.mark.promise("P8.14")
async def test_actors_still_reach_the_services_of_other_nodes_while_their_node_ends(started: Programs) -> None:
    async with tw.Node(name="hub") as hub:
        store = Store()
        await hub.serve(store, name="store")
        url = (await hub.listen(started.url("tcp"))).url
        async with tw.Node(url, name="caller") as caller:
            client = caller.client("store")

            async def pass_on(number: int) -> None:
                await client.keep(number)

            first = caller.spawn(pass_on, mailbox=LETTERS)
            for number in range(LETTERS):
                first.tell(number)
        assert store.kept == list(range(LETTERS))


@pytest.mark.promise("P8.14", "P13.43")
async def test_a_stream_without_an_end_does_not_keep_a_node_from_its_end(started: Programs) -> None:
    _, url = started.hub()
    async with tw.Node(url, name="reader") as reader:
        async with tw.Node(url, name="server") as server:
            await server.serve(Store(), name="store")
            await reader.until(lambda s: s["links"]["services"].get("store") == 1, PATIENCE_S)
            items = reader.client("store").count()
            assert await items.__anext__() == 0
        with pytest.raises(tw.NodeStopped):
            async for _ in items:
                pass
