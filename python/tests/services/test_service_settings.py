"""Services: how much one takes can be said in code, files and the environment, and for one
service.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from service_support import PATIENCE, soon


class Desk(tw.Service):
    def __init__(self) -> None:
        self.inside: asyncio.Queue[str] = asyncio.Queue(100)
        self.open = asyncio.Event()
        self.thread_inside = threading.Semaphore(0)
        self.thread_open = threading.Event()
        self.written = 0
        self.paused = threading.Event()

    @tw.method
    async def hold(self) -> str:
        self.inside.put_nowait("hold")
        await self.open.wait()
        return "held"

    @tw.method
    def block(self) -> str:
        self.thread_inside.release()
        assert self.thread_open.wait(PATIENCE)
        return "blocked"

    async def blocks(self) -> None:
        await asyncio.to_thread(self.thread_inside.acquire, True, PATIENCE)

    @tw.method
    async def count(self) -> AsyncIterator[int]:
        for n in range(1_000):
            self._write(n)
            yield n

    @tw.method
    def count_plainly(self) -> Iterator[int]:
        for n in range(1_000):
            self._write(n)
            yield n

    def _write(self, n: int) -> None:
        self.written += 1
        if n == 1:
            self.paused.set()

    @tw.method
    async def first(self, numbers: AsyncIterator[int]) -> int:
        async for n in numbers:
            # Until now the caller's loop did what it could.
            await asyncio.sleep(0)
            return n
        return -1


BOTH = pytest.mark.parametrize("count", ["count", "count_plainly"])


def services(**settings: int) -> dict[str, Any]:
    return {"services": settings}


@pytest.mark.promise("P13.83")
def test_settings_are_read_like_all_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[services]\nservice_waiting = 200\nstream_ahead = 4\n")
    config = tw.Config(
        {"services": tw.ServiceConfig(service_waiting=100, service_streams=7)},
        file,
        {"TIDEWIRE_SERVICES__STREAM_AHEAD": "5"},
        {"services.service_concurrency": "10"},
    )
    assert tw.Node(config=config).serving == tw.ServiceConfig(10, 200, 7, 5)
    assert tw.Node().serving == tw.ServiceConfig(1_024, 10_000, 10_000, 32)


def test_a_wrong_setting_is_named_with_the_allowed_values() -> None:
    with pytest.raises(tw.ConfigError, match=r"services\.service_wait: unknown key; did you mean service_waiting\?"):
        tw.Node(config=services(service_wait=5))
    with pytest.raises(
        tw.ConfigError, match=r"services\.stream_ahead: 0 is out of range; 1 to 65536 items are allowed"
    ):
        tw.ServiceConfig(stream_ahead=0)
    with tw.Node() as node:
        for name in ("concurrency", "waiting", "streams"):
            for value in (0, 10_001, True, "many"):
                match = f"{name}: {value!r} is not allowed: give a whole number from 1 to 10,000"
                with pytest.raises(tw.InvalidArgument, match=match):
                    node.serve(Desk(), **{name: value})


@pytest.mark.promise("P13.82", "P13.83")
@pytest.mark.parametrize("config", [services(service_concurrency=1, service_waiting=2), {}])
async def test_one_more_than_may_wait_is_refused(config: dict[str, Any]) -> None:
    async with tw.Node(config=config) as node:
        own: dict[str, int] = {} if config else {"concurrency": 1, "waiting": 2}
        desk = Desk()
        node.serve(desk, **own)
        client = node.client(Desk)
        both = (client.hold, desk.inside.get, desk.open), (client.block, desk.blocks, desk.thread_open)
        for call, inside, gate in both:
            first = asyncio.ensure_future(call())
            await soon(inside())
            waiting = [asyncio.ensure_future(call()) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(tw.MailboxFull, match=r"desk\.\w+: too many calls wait .*service_waiting=2: try again"):
                await call()
            gate.set()
            assert len(set(await soon(asyncio.gather(first, *waiting)))) == 1


@pytest.mark.promise("P13.84")
@BOTH
async def test_a_writer_is_as_far_ahead_of_its_reader_as_the_node_says(count: str) -> None:
    async with tw.Node(config=services(stream_ahead=1)) as node:
        desk = Desk()
        node.serve(desk)
        async with getattr(node.client(Desk), count)() as stream:
            assert await anext(stream) == 0
            assert await asyncio.to_thread(desk.paused.wait, PATIENCE)
            desk.open.set()
            # Another call goes through the same loop and threads: a writer that were not held would
            # be far ahead.
            assert await node.client(Desk).hold() == "held"
            assert desk.written <= 3


@pytest.mark.promise("P13.84")
async def test_a_generator_as_an_argument_is_as_far_ahead_as_the_node_of_its_caller_says() -> None:
    written = 0

    async def numbers() -> AsyncIterator[int]:
        nonlocal written
        for n in range(1_000):
            written += 1
            yield n

    async with tw.Node(config=services(stream_ahead=1)) as node:
        node.serve(Desk())
        assert await node.client(Desk).first(numbers()) == 0
        assert written <= 3
