"""Cancellation by others than asyncio: scopes of anyio, on which FastAPI and Starlette run, know
their own by its message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import tidewire as tw

anyio = pytest.importorskip("anyio")

WAITS = [
    "ask",
    "send",
    "request",
    "agent",
    "call",
    "stream",
    "until",
    "stop",
    "outcome",
    "submit",
    "map",
    "idle",
    "subscription",
    "call over a link",
    "stream over a link",
]


async def never(message: object = None) -> None:
    await asyncio.Event().wait()


async def endless() -> AsyncIterator[int]:
    yield 1
    await asyncio.Event().wait()


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass


async def _hear(node: tw.Node) -> None:
    async with node.subscription("news") as news:
        await _read(news)


async def _waits(node: tw.Node, far: tw.Node) -> dict[str, Callable[[], Any]]:
    full, asked = node.spawn(never, mailbox=1), node.spawn(never)
    full.tell(1)
    await asyncio.sleep(0)
    while full.try_send(1):
        await asyncio.sleep(0)
    node.subscribe("asked", asked)
    node.agent(never, id="asked")
    asker = node.agent(never, id="asker")
    timer = node.schedule(3600, asked, 1)
    pool = node.pool(never, workers=1)
    here, there = node.client("desk"), far.client("desk")
    return {
        "ask": lambda: asked.ask(1),
        "send": lambda: full.send(1),
        "request": lambda: node.request("asked", 1),
        "agent": lambda: asker.request(1, to="asked"),
        "call": lambda: here.never(),
        "stream": lambda: _read(here.endless()),
        "until": lambda: node.until(lambda _: False),
        "stop": lambda: full.stop(timeout=5),
        "outcome": lambda: timer.outcome(),
        "submit": lambda: pool.submit(1),
        "map": lambda: _read(pool.map([1])),
        "idle": lambda: node.idle(),
        "subscription": lambda: _hear(node),
        "call over a link": lambda: there.never(),
        "stream over a link": lambda: _read(there.endless()),
    }


@pytest.mark.promise("P16.3")
@pytest.mark.parametrize("what", WAITS)
async def test_a_cancel_scope_ends_its_own_wait_and_nothing_else(what: str) -> None:
    node = tw.Node()
    node._bind_running_loop()
    node.start()
    await node.serve({"never": never, "endless": endless}, name="desk")
    async with tw.Node(node.listen("tide://127.0.0.1:0").url) as far:
        await far.until(lambda now: now["links"]["services"].get("desk") == 1)
        wait = (await _waits(node, far))[what]
        with anyio.move_on_after(0.05) as scope:
            await wait()
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError), anyio.fail_after(0.05):
            await wait()
    await node.stop(timeout=0)
