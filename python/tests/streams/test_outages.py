"""Hubs and servers that go away and come back: reads wait, and go on at their position."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import tidewire as tw
from link_processes import Programs
from server_keeper import Keeper

_T = TypeVar("_T")

AWAY = (tw.LinkLost, tw.NoResponders, tw.HomeUnavailable)
every_server = pytest.mark.parametrize("kind", ["hub", "nats"])


class Backend:
    """A hub or a NATS server in a process of its own, that can be killed and started again."""

    def __init__(self, kind: str, programs: Programs, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self.keeper: Keeper | None = None
        if kind == "hub":
            self._hub, self.url = programs.hub("tide://127.0.0.1:0", "--data", str(folder))
        else:
            self.keeper = Keeper("nats")
            self.url = self.keeper.url + "?request_timeout_ms=1000"

    async def end(self, how: str = "stop") -> None:
        """Kill a hub; stop a NATS server, as one that is killed may forget acks that it gave."""
        if self.keeper is None:
            self._hub.kill()
        else:
            await self.keeper.tell(how)

    async def start(self) -> None:
        """Start it again on its port, with its data."""
        if self.keeper is not None:
            await self.keeper.tell("start")
            return
        self._hub, url = await asyncio.to_thread(self._programs.hub, self.url, "--data", str(self._folder))
        assert url == self.url


@contextlib.contextmanager
def backend(kind: str, programs: Programs, folder: Path) -> Iterator[Backend]:
    found = Backend(kind, programs, folder)
    with found.keeper or contextlib.nullcontext():
        yield found


class Log(logging.Handler):
    """Lines of the log about outages, while the block runs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "storage backend" in record.getMessage():
            self.lines.append((record.levelname, record.getMessage()))
            self._loop.call_soon_threadsafe(self._changed.set)

    async def until(self, level: str, count: int) -> list[str]:
        """Wait for so many lines of a level, and return all of them."""
        while len(found := [text for of, text in self.lines if of == level]) < count:
            self._changed.clear()
            await self._changed.wait()
        return found

    def __enter__(self) -> Log:
        logger = logging.getLogger("tidewire")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("tidewire").removeHandler(self)


class Reading:
    """A task that reads values, until it is cancelled."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.seen: list[Any] = []
        self._changed = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(read))

    async def _run(self, read: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        while True:
            self.seen.append(await read())
            self._changed.set()

    async def until(self, count: int) -> None:
        """Wait until so many values were seen; raise what the task raised."""
        while len(self.seen) < count:
            self._changed.clear()
            await unless_ended(self._changed.wait(), [self])


async def unless_ended(waiting: Coroutine[Any, Any, _T], readings: list[Reading]) -> _T:
    """Wait for something; raise what a task raised that ends before it."""
    task = asyncio.ensure_future(waiting)
    await asyncio.wait({task, *(one.task for one in readings)}, return_when=asyncio.FIRST_COMPLETED)
    for one in readings:
        if one.task.done():
            task.cancel()
            await one.task
    return await task


@contextlib.asynccontextmanager
async def reading(*reads: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncIterator[list[Reading]]:
    """Tasks that read while the block runs."""
    found = [Reading(read) for read in reads]
    try:
        yield found
    finally:
        for one in found:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in found), return_exceptions=True)


@pytest.mark.promise("P17.97")
@every_server
@pytest.mark.parametrize("seed", range(2))
async def test_reads_wait_an_outage_out_and_go_on_at_their_position(
    kind: str, seed: int, tmp_path: Path, started: Programs
) -> None:
    chosen = random.Random(seed)
    before, during, after = (chosen.randrange(1, 40) for _ in range(3))
    with backend(kind, started, tmp_path) as server, Log() as log:
        async with tw.Node(server.url) as node:
            stream = await node.stream("orders", subjects=["orders.>"])
            bucket = await node.kv("limits")
            consumer = await stream.consumer("billing", start="all")
            changes, replay, news = bucket.watch(), stream.read(follow=True), stream.read("new", follow=True)

            async def handle() -> Any:
                event = await anext(consumer)
                await event.ack()
                return event.value, event.delivery

            async def replayed() -> Any:
                return (await anext(replay)).value

            async def came() -> Any:
                return (await anext(news)).value

            async def change() -> Any:
                return (await anext(changes)).value

            async def publish(numbers: range) -> None:
                for number in numbers:
                    await stream.publish("orders.made", number, id=f"order-{number}")
                    await bucket.put(f"key-{number}", number)

            async with reading(handle, replayed, change) as readings:
                await publish(range(before))
                for one in readings:
                    await one.until(before)
                await consumer.flush()
                async with reading(came) as [newest]:
                    await server.end()
                    warnings = await unless_ended(log.until("WARNING", 4), [*readings, newest])
                    # Orders of the outage wait in a list for its end.
                    waiting = range(before, before + during)
                    await server.start()
                    await unless_ended(log.until("INFO", 4), [*readings, newest])
                    await publish(waiting)
                    total = before + during + after
                    await publish(range(before + during, total))
                    for one in readings:
                        await one.until(total)
                    await newest.until(during + after)
                    handled, *rest = [one.seen for one in readings]
                    assert handled == [(number, 1) for number in range(total)]
                    assert rest == [list(range(total))] * 2
                    assert newest.seen == list(range(before, total))
        titles = ["consumer 'billing' of stream 'orders'", "watch of bucket 'limits'", "replay of stream 'orders'"]
        for lines in (warnings, await log.until("INFO", 4)):
            assert [sum(line.startswith(title) for line in lines) for title in titles] == [1, 1, 2]
        assert len(log.lines) == 8, log.lines


@pytest.mark.promise("P17.98")
@every_server
async def test_a_wait_with_a_timeout_ends_during_an_outage_and_raise_on_outage_raises(
    kind: str, tmp_path: Path, started: Programs
) -> None:
    with backend(kind, started, tmp_path) as server:
        async with tw.Node(server.url) as node:
            stream = await node.stream("orders", subjects=["orders.>"])
            bucket = await node.kv("limits")
            patient = await stream.consumer("billing", start="all")
            strict = await stream.consumer("strict", start="all", raise_on_outage=True)
            strict_reads = [
                strict.next(),
                anext(bucket.watch(raise_on_outage=True)),
                anext(stream.read(follow=True, raise_on_outage=True)),
            ]
            waiting = [asyncio.ensure_future(read) for read in strict_reads]
            await server.end()
            assert await patient.next(timeout=0.2) is None
            for one in waiting:
                with pytest.raises(AWAY):
                    await one
            going_on = asyncio.ensure_future(patient.next())
            assert await patient.next(timeout=0.0) is None
            await server.start()
            async with tw.Node(server.url) as other:
                await (await other.find_stream("orders")).publish("orders.made", 1)
            event = await going_on
            assert event is not None and (event.value, event.delivery) == (1, 1)


@pytest.mark.promise("P17.99")
@every_server
async def test_acks_of_an_outage_are_stored_after_it(kind: str, tmp_path: Path, started: Programs) -> None:
    with backend(kind, started, tmp_path) as server:
        async with tw.Node(server.url) as node:
            stream = await node.stream("orders", subjects=["orders.>"])
            consumer = await stream.consumer("billing", start="all", ack_wait=60.0)
            for number in range(10):
                await stream.publish("orders.made", number)
            begun = await consumer.next()
            assert begun is not None
            await server.end()
            await begun.ack()
            await server.start()
            seen = [begun.value]
            while set(seen) != set(range(10)):
                event = await consumer.next()
                assert event is not None
                seen.append(event.value)
                await event.ack()
            await consumer.flush()
            # A hub that is killed forgets which events are out: the one that was handled comes
            # again.
            assert len(seen) <= (11 if kind == "hub" else 10), seen
            assert (await consumer.info()).in_flight == 0
            assert await consumer.dead_letters() == []


async def test_reads_that_nobody_reads_outlive_a_restart_on_nats(tmp_path: Path, started: Programs) -> None:
    with backend("nats", started, tmp_path) as server, Log() as log:
        async with tw.Node(server.url) as node:
            stream = await node.stream("orders", subjects=["orders.>"])
            bucket = await node.kv("limits")
            changes, replay = bucket.watch(raise_on_outage=True), stream.read(follow=True, raise_on_outage=True)
            for number in range(3):
                await bucket.put("eu", number)
                await stream.publish("orders.made", number)
                assert (await anext(changes)).value == number
                assert (await anext(replay)).value == number
                await server.end("kill")
                await server.start()
            await bucket.put("eu", 3)
            await stream.publish("orders.made", 3)
            assert (await anext(changes)).value == 3
            assert (await anext(replay)).value == 3
        assert log.lines == []


@pytest.mark.promise("P17.97")
async def test_a_deletion_is_no_outage(homes: list[tw.Node]) -> None:
    one, other = homes
    stream = await one.stream("orders", subjects=["orders.>"])
    bucket = await one.kv("limits")
    found = await other.find_stream("orders")
    consumer = await found.consumer("billing", start="all")
    changes = (await other.find_kv("limits")).watch()
    waiting = [asyncio.ensure_future(read) for read in (consumer.next(), anext(changes))]
    replay = asyncio.ensure_future(anext(found.read(follow=True)))
    await stream.delete()
    await bucket.purge()
    for read in (*waiting, replay):
        with pytest.raises(tw.NotFound):
            await read
