"""Virtual time for tests of users: the deadlines of the real runtime come without a wait."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import threading
import time
from collections.abc import AsyncIterator

import pytest
import tidewire as tw
from tidewire.testing import Clock

HOUR = 3600.0


class Slow(tw.Service):
    def __init__(self) -> None:
        self.attempts: list[float] = []

    @tw.method
    async def never(self) -> None:
        await asyncio.Event().wait()

    @tw.method
    def compute(self) -> str:
        digest, until = b"", time.thread_time() + 0.3
        while time.thread_time() < until:
            digest = hashlib.sha256(digest).digest()
        return digest.hex()

    @tw.method
    def rest(self, hours: float) -> float:
        time.sleep(hours * HOUR)
        return hours

    @tw.method
    async def ticks(self) -> AsyncIterator[int]:
        for tick in range(3):
            await asyncio.sleep(HOUR)
            yield tick


async def test_timers_timeouts_and_sleeps_come_in_their_order(tidewire_node: tw.Node, tidewire_clock: Clock) -> None:
    came: list[tuple[str, int]] = []

    def note(what: str) -> None:
        came.append((what, round(tidewire_clock.elapsed / HOUR)))

    tidewire_node.schedule(3 * HOUR, tidewire_node.spawn(note), "timer")
    tidewire_node.serve(Slow())
    slow = tidewire_node.client(Slow)
    began = time.time()
    with pytest.raises(tw.AskTimeout):
        await slow.with_(timeout=HOUR).never()
    note("timeout")
    assert await slow.with_(timeout=2 * HOUR).rest(1) == 1
    note("rest")
    async with asyncio.timeout(5 * HOUR):
        assert [tick async for tick in slow.ticks()] == [0, 1, 2]
    note("ticks")
    assert came == [("timeout", 1), ("rest", 2), ("timer", 3), ("ticks", 5)]
    assert time.time() - began >= 5 * HOUR


def test_time_passes_as_usual_while_a_thread_works(tidewire_hub: tw.Listener, tidewire_clock: Clock) -> None:
    with tw.Node(tidewire_hub.url) as server, tw.Node(tidewire_hub.url) as caller:
        server.serve(Slow())
        # A jump to this deadline would fail the call.
        assert len(caller.client(Slow).with_(timeout=HOUR).sync.compute()) == 64
        assert tidewire_clock.elapsed < HOUR
        woken = threading.Event()
        threading.Timer(0.05, woken.set).start()
        threading.Thread(target=time.sleep, args=(2 * HOUR,), daemon=True).start()
        caller.sync.idle(timeout=10 * HOUR)
        assert woken.wait(30)
    held = threading.Event()
    with tw.Node(config={"stop_timeout_ms": 20}) as stuck:
        stuck.spawn(lambda _: held.wait(60)).tell(1)
    assert stuck.ledger is not None and stuck.ledger.stuck
    held.set()


async def test_deadlines_of_streams_and_leases_come(tidewire_streams: tw.Node, tidewire_clock: Clock) -> None:
    node = tidewire_streams
    days = await node.stream("days", subjects=["days.>"])
    async with await days.consumer("workers", start="all", ack_wait=HOUR, backoff=(2 * HOUR,)) as workers:
        await days.publish("days.first", 1)
        first = await workers.next(1.0)
        assert await workers.next(2.5 * HOUR) is None
        again = await workers.next(HOUR)
        assert first is not None and again is not None and (first.delivery, again.delivery) == (1, 2)
        assert 3 * HOUR <= tidewire_clock.elapsed < 3.6 * HOUR
        await again.ack()
        await days.schedule("midnight", "@daily", "days.midnight", "again")
        beats = []
        while len(beats) < 3:
            beat = await workers.next()
            assert beat is not None
            await beat.ack()
            beats.append(beat.time.date())
        assert [(late - early).days for early, late in itertools.pairwise(beats)] == [1, 1]
    bucket = await node.kv("prices", ttl=60.0)
    await bucket.put("tide", 7)
    async with node.lease("nightly", ttl=60.0) as lease:
        await asyncio.sleep(180.0)
        assert lease.is_held
    assert await bucket.get("tide") is None
