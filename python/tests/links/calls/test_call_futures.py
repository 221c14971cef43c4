"""Calls in asyncio: what can be done with one before it is awaited, here and over a link."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import tidewire as tw

PATIENCE_S = 30.0
PLACES = pytest.mark.parametrize("place", ["here", "over a link"])


async def double(value: int) -> int:
    return 2 * value


async def never() -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def desk_at(place: str) -> AsyncIterator[Any]:
    """A client of a service of the same node, or of another one."""
    async with tw.Node(name="hub") as hub:
        await hub.serve({"double": double, "never": never}, name="desk")
        if place == "here":
            yield hub.client("desk")
            return
        async with tw.Node(hub.listen("tide://127.0.0.1:0").url, name="caller") as caller:
            await caller.until(lambda now: now["links"]["services"].get("desk") == 1, timeout=PATIENCE_S)
            yield caller.client("desk")


def with_desk(place: str, story: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        async with desk_at(place) as desk:
            # The first call learns what the later ones know.
            for _ in range(2):
                await story(desk)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


@PLACES
def test_a_call_is_awaited_like_any_coroutine(place: str) -> None:
    async def story(desk: Any) -> None:
        assert await desk.double(1) == 2
        assert await asyncio.create_task(desk.double(2)) == 4
        assert await asyncio.ensure_future(desk.double(3)) == 6
        assert await asyncio.gather(desk.double(4), desk.double(5)) == [8, 10]
        assert await asyncio.wait_for(desk.double(6), PATIENCE_S) == 12
        assert await asyncio.shield(desk.double(7)) == 14
        assert sorted([await one for one in asyncio.as_completed([desk.double(8), desk.double(9)])]) == [16, 18]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(desk.never(), 0.01)

    with_desk(place, story)


@PLACES
def test_wait_takes_the_tasks_of_calls(place: str) -> None:
    async def story(desk: Any) -> None:
        quick, slow = asyncio.create_task(desk.double(1)), asyncio.create_task(desk.never())
        assert "desk.double" in repr(quick)
        done, pending = await asyncio.wait({quick, slow}, return_when=asyncio.FIRST_COMPLETED)
        assert (done, pending) == ({quick}, {slow})
        assert quick.result() == 2
        slow.cancel()
        await asyncio.wait({slow})
        assert slow.cancelled()

    with_desk(place, story)


@PLACES
def test_groups_take_calls_and_wait_refuses_them_as_it_does_any_coroutine(place: str) -> None:
    async def story(desk: Any) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(desk.double(1))
        assert task.result() == 2
        call = desk.double(1)
        assert inspect.isawaitable(call)
        assert asyncio.iscoroutine(call)
        with pytest.raises(TypeError, match="use tasks explicitly"):
            await asyncio.wait({call})
        assert await call == 2

    with_desk(place, story)
