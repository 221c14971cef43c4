"""Services: deadlines and cancellation."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest
import tidewire as tw
from service_support import PATIENCE, Hanging, soon

# Deadlines and cancellation


async def test_a_deadline_ends_the_call_and_its_handler(node: tw.Node) -> None:
    hanging = Hanging()
    node.serve(hanging)
    with pytest.raises(tw.AskTimeout, match=r"hanging\.hang: no answer in time") as late:
        await node.client(Hanging).with_(timeout=0.05).hang()
    assert late.value.retryable
    assert [await soon(hanging.left.get()) for _ in range(2)] == ["cancelled", "finally"]


async def test_a_plain_function_sees_that_nobody_waits_for_it(node: tw.Node) -> None:
    hanging = Hanging()
    served = node.serve(hanging)
    task = asyncio.create_task(node.client("hanging").block())
    await soon(asyncio.to_thread(hanging.thread_inside.wait, PATIENCE))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hanging.thread_open.set()
    assert await soon(asyncio.to_thread(hanging.seen_cancelled.wait, PATIENCE))
    await soon(served.stop())
    assert (served.statistics()["in_flight"], served.statistics()["cancelled"]) == (0, 1)


async def test_nested_calls_have_what_is_left_of_the_time(node: tw.Node) -> None:
    class Inner(tw.Service):
        @tw.method
        async def left(self, call: tw.CallContext) -> float:
            assert call.remaining is not None
            return call.remaining

        @tw.method
        def left_plainly(self) -> float:
            remaining = tw.context().remaining
            assert remaining is not None
            return remaining

    class Outer(tw.Service):
        @tw.method
        async def ask(self) -> tuple[float, float, float]:
            inner = node.client(Inner)
            mine = tw.context().remaining
            assert mine is not None
            return mine, await inner.left(), await node.client("inner").left_plainly()

        @tw.method
        def ask_plainly(self) -> float:
            return node.client(Inner).with_(timeout=20.0).sync.left()

    node.serve(Inner())
    node.serve(Outer())
    outer = node.client(Outer).with_(timeout=5.0)
    mine, inner, plain = await outer.ask()
    assert 0 < plain <= inner <= mine <= 5.0
    assert 0 < await node.client("outer").with_(timeout=5.0).ask_plainly() <= 5.0
    assert 5.0 < await node.client("outer").ask_plainly() <= 20.0, "a call may have less than what is left"
    assert await node.client(Inner).left() > 20.0, "the default is 30 s"


async def test_a_handler_that_nobody_waits_for_calls_nobody(node: tw.Node) -> None:
    told: asyncio.Queue[BaseException] = asyncio.Queue(1_000)
    inside = asyncio.Event()

    async def ask() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await node.client(Hanging).ping()
            except tw.TidewireError as error:
                told.put_nowait(error)

    node.serve(Hanging())
    node.serve({"ask": ask}, name="outer")
    task = asyncio.create_task(node.client("outer").ask())
    await soon(inside.wait())
    task.cancel()
    error = await soon(told.get())
    assert isinstance(error, tw.AskTimeout)
    assert "the call of outer.ask around it was cancelled" in str(error)


async def test_a_method_may_say_how_long_it_takes(node: tw.Node) -> None:
    class Slow(tw.Service):
        @tw.method(timeout=60.0)
        async def left(self, call: tw.CallContext) -> float:
            assert call.remaining is not None
            return call.remaining

    node.serve(Slow())
    assert await node.client(Slow).left() > 30.0
    assert await node.client("slow").left() > 30.0
    assert await node.client(Slow).with_(timeout=1.0).left() <= 1.0


async def test_a_call_does_not_see_that_the_one_before_it_was_cancelled(node: tw.Node) -> None:
    class Counting(Hanging):
        @tw.method
        async def cancellations(self) -> int:
            task: Any = asyncio.current_task()
            return int(task.cancelling())

    counting = Counting()
    node.serve(counting, concurrency=1)
    calls = node.client(Counting)
    task = asyncio.create_task(calls.hang())
    await soon(counting.inside.wait())
    after = asyncio.create_task(calls.cancellations())
    await asyncio.sleep(0)
    task.cancel()
    assert await soon(after) == 0


class Big:
    """An argument that takes memory."""


@pytest.mark.parametrize("method", ["plain", "coroutine"])
async def test_a_call_that_is_given_up_before_it_begins_holds_no_arguments(method: str) -> None:
    release, begun = threading.Event(), threading.Event()

    def plain(value: object) -> None:
        begun.set()
        release.wait(30)

    async def coroutine(value: object) -> None:
        begun.set()
        await asyncio.to_thread(release.wait, 30)

    async with tw.Node() as node:
        await node.serve({"plain": plain, "coroutine": coroutine}, name="slow", concurrency=1)
        call = getattr(node.client("slow"), method)
        first = asyncio.ensure_future(call(None))
        assert await asyncio.to_thread(begun.wait, 30)
        values = [Big() for _ in range(20)]
        gone = [weakref.ref(value) for value in values]
        calls = [asyncio.ensure_future(call(value)) for value in values]
        await asyncio.sleep(0)
        for waiting in calls:
            waiting.cancel()
        await asyncio.wait(calls)
        del values, calls, waiting
        gc.collect()
        # The handler that they waited for is still at work.
        assert not first.done() and [one() for one in gone] == [None] * 20
        release.set()
        await first
