"""The flights through three processes, joined by links.

coordinator --- calls, with batches of flights ---> hub ---> specialists: auditor, router,
            --- asks for the weather ------------->     ---> one actor per carrier and airport,
            weather
            <-- events on delay.JFK.AA ------------     <---
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import data
import tidewire as tw
from actors import JOINS, Joiner, Listeners, show_often
from children import ChildLost, Children
from counting import COUNTED, WEATHER, Counted, Counting
from data import Flight, Weather
from report import Outcome
from tidewire.values import encode
from totals import Totals, is_late

BATCH = 500
"""Flights of one call."""
BATCHES_UNDER_WAY = 4
"""Calls that wait for an answer. With that many the reader waits too: the specialists have no
room.
"""
WEIGHED = 16
"""One batch of so many is weighed, as it has to be encoded again for that."""
PATIENCE_S = 30.0


class Coordinator:
    """Reads the flights and sends them, asks for the weather of the late ones, and hears the
    alerts.
    """

    def __init__(self, node: tw.Node, show: Callable[[int, float], None]) -> None:
        self.node = node
        self.counting = node.client(Counting)
        self.joiner = node.spawn(Joiner, self._weather_at, name="joiner", concurrency=JOINS)
        self.listeners = Listeners(node)
        self.all_heard = asyncio.Event()
        node.subscribe(COUNTED, self._all_heard)
        self.taken = self.batches = self.asks = self.weighed = self.weighed_bytes = 0
        self.began = time.perf_counter()
        self.timer = show_often(node, lambda: show(self.taken, time.perf_counter() - self.began))

    async def count(self, flights: Iterable[Flight]) -> tuple[Totals, Counted]:
        """Send all flights, and return what everybody has found."""
        batches = _batches(flights)
        await asyncio.gather(*(self._send(batches) for _ in range(BATCHES_UNDER_WAY)))
        return await self.finish()

    async def _send(self, batches: Iterator[list[Flight]]) -> None:
        for batch in batches:
            # A named tuple would carry the names of its fields, and be checked field by field: 20
            # times the work.
            rows = [tuple(flight) for flight in batch]
            self._weigh(rows)
            taken = await self.counting.take(rows)
            self.taken += taken
            for flight in batch:
                # One that never arrived does not pass the auditor.
                if is_late(flight) and flight.arr_delay is not None:
                    await self.joiner.send(flight)

    def _weigh(self, rows: Sequence[tuple[object, ...]]) -> None:
        if self.batches % WEIGHED == 0:
            self.weighed += len(rows)
            self.weighed_bytes += len(encode(rows))
        self.batches += 1

    async def _weather_at(self, where: tuple[str, str]) -> Weather | None:
        self.asks += 1
        weather: Weather | None = await self.node.request(WEATHER, where, timeout=PATIENCE_S)
        return weather

    async def _all_heard(self, _: int) -> None:
        self.all_heard.set()

    async def finish(self) -> tuple[Totals, Counted]:
        """Let everything be handled, and return what everybody has found."""
        counted = await self.counting.finish()
        # An event is delivered at most once. If alerts are lost, their totals differ, and the
        # report says so.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.all_heard.wait(), PATIENCE_S)
        totals = Totals.of(counted.totals)
        for ref in (self.joiner, self.listeners.alerts):
            totals.add(await ref.ask("totals", timeout=PATIENCE_S))
        self.timer.cancel()
        return totals, counted

    def traffic(self, totals: Totals, seconds: float) -> str:
        """Say what went over the links."""
        events = sum(totals.alerts.values())
        megabytes = self.weighed_bytes / max(1, self.weighed) * self.taken / 1e6
        return (
            f"over the links, all through the hub: {self.batches:,} calls with {self.taken:,} flights "
            f"(about {megabytes:,.1f} MB, {megabytes / seconds:,.1f} MB/s), {self.asks:,} asks for the weather, "
            f"{events:,} alerts: {(self.batches + self.asks + events) / seconds:,.0f} calls and events a second"
        )


async def run(limit: int | None, one: Outcome, show: Callable[..., None]) -> Outcome:
    """Start the other processes, send the flights, and compare with what the plain loop found
    before.

    Raises:
        ChildLost: if one of the processes ends before its time.
    """
    began = time.perf_counter()
    async with Children() as children, tw.Node(children.url, name="coordinator") as node:
        coordinator = Coordinator(node, show)
        print(f"started in {time.perf_counter() - began:.2f} s", flush=True)
        totals, counted = await _counted(children, coordinator, data.flights(limit))
        seconds = time.perf_counter() - coordinator.began
        show(coordinator.taken, seconds, last=True)
        dead = Counter(counted.dead) + Counter(node.statistics()["dead_letters"])
        ledgers, hub = await _end(children, coordinator)
    return Outcome(
        totals=totals,
        expected=one.expected,
        seconds=seconds,
        plain_seconds=one.plain_seconds,
        differences=[*totals.differences(one.expected), *coordinator.listeners.differences(one.expected)],
        restarts=counted.restarts,
        dead=dead,
        ledgers={"the auditor": counted.audited, **ledgers},
        carriers=one.carriers,
        airports=one.airports,
        notes=[hub, coordinator.traffic(totals, seconds)],
    )


async def _counted(children: Children, coordinator: Coordinator, flights: Iterable[Flight]) -> tuple[Totals, Counted]:
    try:
        return await children.during(coordinator.count(flights))
    except asyncio.CancelledError:
        print(f"\ninterrupted after {coordinator.taken:,} flights: finishing what was sent", file=sys.stderr)
        _, counted = await children.during(coordinator.finish())
        ledgers, hub = await _end(children, coordinator)
        for who, ledger in {"the auditor": counted.audited, **ledgers}.items():
            print(f"{who}: {ledger}", file=sys.stderr)
        print(hub, file=sys.stderr)
        raise
    except ChildLost as lost:
        raise ChildLost(f"{lost} after {coordinator.taken:,} flights: the others have been ended") from None


async def _end(children: Children, coordinator: Coordinator) -> tuple[dict[str, tw.Ledger], str]:
    """End all three, those who count before the hub that joins them. Return their ledgers, that of
    the hub as a line.
    """
    mine = await coordinator.node.stop()
    theirs = tw.Ledger(*json.loads(await children.specialists.end()))
    said = await children.hub.end()
    return {"the other specialists": theirs, "the coordinator": mine}, f"ledger of the hub: {said.partition(': ')[2]}"


def _batches(flights: Iterable[Flight]) -> Iterator[list[Flight]]:
    flights = iter(flights)
    while batch := list(islice(flights, BATCH)):
        yield batch
