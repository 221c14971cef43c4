"""Plain functions that other nodes call: each answers from its own thread, and waits for nobody
else.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest
import tidewire as tw
from service_support import PATIENCE, soon

COUNT = 200
seen: ContextVar[int] = ContextVar("seen", default=0)


class Desk(tw.Service):
    """Handlers that answer at once, and such that stay until the test lets them go on."""

    def __init__(self, name: str = "desk") -> None:
        self.name = name
        self.open = threading.Event()
        self.inside = threading.Semaphore(0)

    @tw.method
    def quick(self, number: int) -> int:
        return number

    @tw.method
    def set_seen(self, number: int) -> int:
        before = seen.get()
        seen.set(number)
        return before

    @tw.method
    def raise_cancelled(self) -> None:
        raise asyncio.CancelledError

    @tw.method
    def stay(self) -> str:
        self.inside.release()
        assert self.open.wait(PATIENCE)
        return self.name

    @tw.method
    async def stay_soon(self) -> str:
        self.inside.release()
        await asyncio.to_thread(self.open.wait, PATIENCE)
        return self.name


class OnlyPlain(tw.Service):
    """The same without coroutines: its threads have the places."""

    __init__ = Desk.__init__
    stay = Desk.stay


async def test_answers_do_not_wait_for_a_function_that_blocks(node: tw.Node) -> None:
    desk = Desk()
    url = node.listen("tide://127.0.0.1:0").url
    async with tw.Node(url) as callee, tw.Node(url) as caller:
        await callee.serve(desk, name="desk")
        client = caller.client("desk")
        blocking: list[asyncio.Future[str]] = []
        quick: list[asyncio.Future[int]] = []
        for number in range(COUNT):
            quick.append(asyncio.ensure_future(client.quick(number)))
            if number % 50 == 25:
                blocking.append(asyncio.ensure_future(client.stay()))
        assert await soon(asyncio.gather(*quick)) == list(range(COUNT))
        assert not any(call.done() for call in blocking)
        desk.open.set()
        assert await soon(asyncio.gather(*blocking)) == ["desk"] * len(blocking)


async def test_variables_and_errors_of_a_function_are_its_own(node: tw.Node) -> None:
    url = node.listen("tide://127.0.0.1:0").url
    await node.serve(Desk(), name="desk")
    async with tw.Node(url) as caller:
        client = caller.client("desk")
        assert await soon(asyncio.gather(*(client.set_seen(number) for number in range(1, 50)))) == [0] * 49
        with pytest.raises(tw.RemoteError, match="CancelledError"):
            await client.raise_cancelled()
        assert await client.quick(1) == 1


@pytest.mark.parametrize(("kind", "method"), [(Desk, "stay"), (Desk, "stay_soon"), (OnlyPlain, "stay")])
async def test_calls_that_have_not_begun_go_to_another_instance_when_theirs_is_cut_short(
    kind: type[Desk], method: str
) -> None:
    async with tw.Node() as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url) as callee, tw.Node(url) as caller:
            first, second = kind("first"), kind("second")
            served = await callee.serve(first, name="desk", concurrency=1)
            call = getattr(caller.client("desk"), method)
            calls = [asyncio.ensure_future(call()) for _ in range(3)]
            assert await asyncio.to_thread(first.inside.acquire, True, PATIENCE)
            # Earlier frames over the same links have arrived before this one.
            await callee.serve({"come": lambda number: number}, name="last")
            assert await soon(caller.client("last").come(1)) == 1
            assert served.statistics()["waiting"] == 2
            second.open.set()
            await hub.serve(second, name="desk")
            await caller.until(lambda now: now["links"]["services"].get("desk") == 2, timeout=PATIENCE)
            stopping = asyncio.ensure_future(served.stop(drain=False))
            await asyncio.sleep(0)
            first.open.set()
            ledger = await soon(stopping)
            assert ledger.balanced and ledger.returned == 2
            outcomes = await soon(asyncio.gather(*calls, return_exceptions=True))
            assert outcomes[1:] == ["second", "second"]
