"""Handlers that hold all threads of their dispatcher: errors, statistics and logs name them."""

from __future__ import annotations

import asyncio
import logging
import threading
from time import monotonic
from typing import Any

import pytest
import tidewire as tw
from tidewire.testing import Clock

PATIENCE_S = 60


def of(threads: int, spare: int) -> dict[str, Any]:
    return {"dispatchers": {"default": {"threads": threads, "spare_threads": spare}}}


@pytest.mark.promise("P17.108")
def test_handlers_that_wait_for_each_other_until_no_thread_is_free_are_named(tidewire_clock: Clock) -> None:
    with tw.Node(config=of(1, 1)) as node:
        last = node.spawn(lambda message: message, name="last")

        def second(message: object) -> tuple[str, str | None, dict[str, Any]]:
            with pytest.raises(tw.AskTimeout) as raised:
                last.ask(message, timeout=0.2).wait()
            return str(raised.value), raised.value.reason, node.statistics()["dispatchers"]["default"]

        asked = node.spawn(second, name="second")
        first = node.spawn(lambda message: asked.ask(message, timeout=PATIENCE_S).wait(), name="first")
        text, cause, row = node.sync.ask(first, "x", timeout=PATIENCE_S)
        assert cause == (
            "dispatcher 'default' has no free thread, handlers hold all 2: "
            f"first (#{first.id}), second (#{asked.id}). "
            "Let these handlers await instead of block, or raise dispatchers.default.spare_threads (now 1)"
        )
        assert text == f'actor #{last.id} "last" gave no reply within 200ms: {cause}'
        assert (row["threads"], row["threads_max"]) == (2, 2)
        assert row["held_by"] == {f"first (#{first.id})": 1, f"second (#{asked.id})": 1}
        # The actor that waited for a thread has one as soon as the others went on.
        assert node.sync.ask(last, 1, timeout=PATIENCE_S) == 1
        assert node.statistics()["dispatchers"]["default"]["held_by"] == {}


@pytest.mark.promise("P17.108")
def test_all_asks_that_starve_together_are_told_so(tidewire_clock: Clock) -> None:
    # Each handler asks the next one, until none has a thread; all have the same deadline.
    count, causes = 8, dict[int, str | None]()
    with tw.Node(config=of(1, count - 1)) as node:
        actors = [node.spawn(lambda message: message)]

        def hold(number: int, until: float) -> None:
            with pytest.raises(tw.AskTimeout) as raised:
                actors[number].ask((number - 1, until), timeout=until - monotonic()).wait()
            causes[number] = raised.value.reason

        actors += [node.spawn(lambda message: hold(*message)) for _ in range(count)]
        node.sync.ask(actors[-1], (count - 1, monotonic() + 1.0), timeout=PATIENCE_S)
    assert len(causes) == count
    for cause in causes.values():
        assert cause and f"handlers hold all {count}: " in cause and "4 more. Let these handlers await" in cause


@pytest.mark.promise("P17.108")
def test_a_handler_that_blocks_outside_of_the_runtime_is_named_too(tidewire_clock: Clock) -> None:
    gate = threading.Event()
    with tw.Node(config=of(1, 0)) as node:
        blocks = node.spawn(lambda _: gate.wait(PATIENCE_S), name="blocks")
        asked = node.spawn(lambda message: message, name="asked")
        blocks.tell(1)
        with pytest.raises(tw.AskTimeout) as raised:
            node.sync.ask(asked, 1, timeout=0.1)
        assert f"handlers hold all 1: blocks (#{blocks.id})" in str(raised.value)
        assert "raise dispatchers.default.threads (now 1)" in str(raised.value)
        gate.set()
        assert node.sync.ask(asked, 1, timeout=PATIENCE_S) == 1
        # An actor that is slow while threads are free is told to be slow.
        gate.clear()
    with tw.Node(config=of(2, 0)) as node:
        blocks = node.spawn(lambda _: gate.wait(PATIENCE_S))
        with pytest.raises(tw.AskTimeout) as raised:
            node.sync.ask(blocks, 1, timeout=0.1)
        assert "allow more time" in str(raised.value)
        assert raised.value.reason is None
        gate.set()


async def late(desk: Any, is_blocked: bool = True) -> tw.AskTimeout:
    """Call until the error says that the callee is blocked. A node tells once a second of calls
    that stand, and its hub tells the caller.
    """
    while True:
        with pytest.raises(tw.AskTimeout) as raised:
            await desk.answer()
        if raised.value.blocked_ms or not is_blocked:
            return raised.value


@pytest.mark.promise("P17.108")
@pytest.mark.parametrize("place", ["same node", "hub", "node"])
def test_a_service_whose_methods_hold_all_threads_says_so_to_its_callers(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate, begun = threading.Event(), threading.Event()

    class Desk:
        def hold(self) -> None:
            begun.set()
            gate.wait(PATIENCE_S)

        def answer(self) -> int:
            return 1

    async def story() -> None:
        async with tw.Node(name="hub", config=of(1, 0)) as hub:
            url = hub.listen("tide://127.0.0.1:0").url
            async with tw.Node(url, name="other", config=of(1, 0)) as other:
                server, caller = (other, hub) if place == "node" else (hub, hub if place == "same node" else other)
                await server.serve(Desk(), name="desk", concurrency=4)
                desk = caller.client("desk").with_(timeout=PATIENCE_S)
                holding = asyncio.ensure_future(desk.hold())
                await asyncio.to_thread(begun.wait, PATIENCE_S)
                error = await asyncio.wait_for(late(desk.with_(timeout=0.1), place != "same node"), PATIENCE_S)
                if place == "same node":
                    assert " of desk (#" in (error.reason or "")
                else:
                    assert "its dispatcher has no free thread" in str(error)
                gate.set()
                await holding
                assert await desk.answer() == 1

    with caplog.at_level(logging.WARNING, "tidewire"):
        asyncio.run(story())
    if place != "same node":
        told = [record.getMessage() for record in caplog.records if "has no free thread" in record.getMessage()]
        assert len(told) == 1
        assert " of desk (#" in told[0]
