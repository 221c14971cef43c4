"""A call that has failed leaves nothing behind: no error, no frame of its traceback, and nothing
that those hold.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import tidewire as tw
from remote_support import desk_nodes, let_go


class Broken(Exception):
    """Exception of the handlers here. Unlike ``ValueError`` it can be referred to weakly."""


class Desk(tw.Service):
    @tw.method
    async def pack(self, progress: Callable[[int], Awaitable[None]]) -> None:
        await progress(1)

    @tw.method
    async def fail(self) -> None:
        raise Broken

    @tw.method
    def fail_plainly(self) -> None:
        raise Broken


def broken(_: object) -> None:
    raise Broken


async def test_functions_of_failed_calls_are_released_without_the_garbage_collector() -> None:
    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        gc.disable()
        try:
            for _ in range(20):
                with pytest.raises(Broken):
                    await desk.pack(lambda box: broken(box))
            await let_go(world.caller, world.server)
        finally:
            gc.enable()


async def note(begin: Callable[[], Any]) -> weakref.ref[Broken]:
    call = begin()
    try:
        # A cycle: this frame, the call, its error, the traceback, this frame.
        await call
    except Broken as error:
        return weakref.ref(error)
    raise AssertionError


@pytest.mark.parametrize("method", ["fail", "fail_plainly"])
async def test_the_error_of_a_call_that_its_own_traceback_leads_to_can_be_collected(method: str) -> None:
    async with desk_nodes(Desk()) as world:
        error = await note(getattr(world.caller.client("desk"), method))
        await asyncio.sleep(0)
        gc.collect()
        assert error() is None


async def test_the_error_of_an_ask_that_its_own_traceback_leads_to_can_be_collected() -> None:
    async with tw.Node(config={"dead_letters": 0}) as node:
        actor = node.spawn(broken)
        error = await note(lambda: actor.ask(1))
        await actor.stop()
        gc.collect()
        assert error() is None
