"""The service that the page calls: it begins runs, which the page holds as remote objects."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import plain
import tidewire as tw
from actors import ALERTS_WAITING, FlightSystem
from totals import Totals
from year import Airport, Scheduled, Year

TICK_S = 0.1
"""How often the page is told."""
RATE_MIN, RATE_MAX = 0.1, 1_000.0
"""Hours of the flights in one of ours."""
DAYS_MAX = 31
ASKED_ABOVE = 50
"""So many departures of a day that are an hour late are worth a question to the person at the
page.
"""
SLOW = 0.5
ANSWER_S = 60.0
CHOICES = ("Look closer", "Fly on")

Row = tuple[float, float, str, str, str, int | None]
"""Minute, minutes in the air, carrier, origin, destination, and the delay at departure: None for
one that was cancelled.
"""


@dataclass
class Chart:
    """Constant data: the places of the airports, the carriers, and the period."""

    airports: list[Airport]
    carriers: dict[str, str]
    first: date
    last: date


@dataclass
class Progress:
    """Progress of a run by one minute."""

    minute: float
    rate: float
    departed: list[Row]
    flights: dict[str, int]
    late: int
    carriers: dict[str, tuple[int, int]]
    """Flights that have arrived of each carrier, and the minutes that they were late, all
    together.
    """


@dataclass
class Alert:
    """A departure an hour late, or more."""

    origin: str
    carrier: str
    minutes: int


@dataclass
class Outcome:
    """Totals of the actors at the end, and how many of them differ from a plain loop over the same
    flights.
    """

    flights: dict[str, int]
    late: int
    weather: dict[str, int]
    totals: int
    differences: list[str]
    messages: int


class Live(tw.Service):
    """Flights of days in 2013, through a system of actors."""

    def __init__(self, node: tw.Node, year: Year) -> None:
        self._node = node
        self._year = year
        self._numbers = itertools.count(1)

    @tw.method
    async def chart(self) -> Chart:
        """Give what the page draws below the flights."""
        days = list(self._year.days)
        return Chart(list(self._year.airports.values()), self._year.carriers, days[0], days[-1])

    @tw.method
    async def begin(self, day: date, days: int = 1, rate: float = 2.0) -> Any:
        """Make a run over some days: hours of the flights in a second. Nothing flies before its
        ``fly`` is called.
        """
        if day not in self._year.days:
            raise tw.InvalidArgument(f"day: {day} is not allowed: give one of 2013")
        if not 1 <= days <= DAYS_MAX:
            raise tw.InvalidArgument(f"days: {days} is not allowed: give 1 to {DAYS_MAX}")
        schedule = await asyncio.to_thread(self._year.schedule, day, days)
        return Run(self._node, self._year, f"run-{next(self._numbers)}", schedule, rate)


class Run(tw.Service):
    """One run, for the page that began it."""

    def __init__(self, hub: tw.Node, year: Year, name: str, schedule: list[Scheduled], rate: float) -> None:
        self._hub = hub
        self._year = year
        self._name = name
        self._schedule = schedule
        self._alerts: asyncio.Queue[Alert | None] = asyncio.Queue(1_000)
        self._is_stopped = False
        self._set(rate)

    def _set(self, rate: float) -> None:
        if not RATE_MIN <= rate <= RATE_MAX:
            raise tw.InvalidArgument(f"rate: {rate} is not allowed: give {RATE_MIN} to {RATE_MAX:.0f} hours a second")
        self._rate = rate

    @tw.method
    async def set_rate(self, rate: float) -> None:
        """Fly faster, or slower."""
        self._set(rate)

    @tw.method
    async def stop(self) -> None:
        """Let no more flights leave."""
        self._is_stopped = True

    @tw.method
    async def alerts(self) -> AsyncIterator[Alert]:
        """Give the late departures as they are published, until the run is over."""
        while (alert := await self._alerts.get()) is not None:
            yield alert

    @tw.method(timeout=3_600.0)
    async def fly(self, person: str, progress: Callable[[Progress], Awaitable[Any]]) -> Outcome:
        """Fly, and give what the actors found.

        Args:
            person: The instance of the service ``person`` that is asked what to do.
            progress: Called ten times a second; the next flights leave when it has answered.
        """
        async with tw.Node(name=self._name) as node:
            system = FlightSystem(node, self._year.weather, lambda *_: None)
            node.subscribe("delay.>", node.spawn(self._alert, mailbox=ALERTS_WAITING))
            flown = await self._send(system, person, progress)
            totals = await system.finish()
        # The end of the node has delivered what was published.
        self._say(None)
        expected = await asyncio.to_thread(plain.compute, (one.flight for one in flown), self._year.weather)
        differences = [*totals.differences(expected), *system.listeners.differences(expected)]
        assert node.ledger is not None
        messages = node.ledger.accepted + system.specialists.ledger.accepted
        counts, late = dict(totals.flights), sum(totals.alerts.values())
        return Outcome(counts, late, dict(totals.late_in_weather), len(totals), differences, messages)

    async def _alert(self, minutes: int, ctx: tw.Context) -> None:
        assert ctx.subject is not None
        _, origin, carrier = ctx.subject.split(".")
        self._say(Alert(origin, carrier, minutes))

    def _say(self, alert: Alert | None) -> None:
        # A page that does not read them gets the last ones.
        if self._alerts.full():
            self._alerts.get_nowait()
        self._alerts.put_nowait(alert)

    async def _send(
        self, system: FlightSystem, person: str, progress: Callable[[Progress], Awaitable[Any]]
    ) -> list[Scheduled]:
        left, flown = deque(self._schedule), []
        loop, asked = asyncio.get_running_loop(), 0
        minute = left[0].minute - 10.0 if left else 0.0
        while left and not self._is_stopped:
            began = loop.time()
            minute += self._rate * 60.0 * TICK_S
            leaving = []
            while left and left[0].minute <= minute:
                leaving.append(left.popleft())
            await system.feed(one.flight for one in leaving)
            flown += leaving
            told = await self._progress(system, minute, leaving)
            await progress(told)
            if told.late >= asked + ASKED_ABOVE:
                asked = told.late
                await self._ask(person, told)
            await asyncio.sleep(max(0.0, began + TICK_S - loop.time()))
        return flown

    async def _progress(self, system: FlightSystem, minute: float, leaving: list[Scheduled]) -> Progress:
        """Ask the actors what they have found so far. They go on meanwhile: their counts are copied
        in one step.
        """
        seen: Totals
        seen, found = await system.specialists.router.ask("totals")
        late: Totals = await system.listeners.alerts.ask("totals")
        carriers: Mapping[str, tuple[int, int]] = {}
        for ref in found:
            one: Totals = await ref.ask("totals")
            carriers = {
                **carriers,
                **{code: (n, one.carrier_minutes[code]) for code, n in list(one.carrier_flights.items())},
            }
        return Progress(
            minute,
            self._rate,
            [_row(one) for one in leaving],
            dict(seen.flights),
            sum(list(late.alerts.values())),
            dict(carriers),
        )

    async def _ask(self, person: str, told: Progress) -> None:
        """Ask the person at the page; whoever does not answer lets the flights go on."""
        question = f"{told.late} departures were an hour late, or more. Look closer?"
        asking = self._hub.client("person").with_(instance=person, timeout=ANSWER_S)
        try:
            answer = await asking.ask(question, list(CHOICES))
        except tw.AskTimeout:
            return
        if answer == CHOICES[0]:
            self._rate = SLOW


def _row(one: Scheduled) -> Row:
    flight = one.flight
    return (one.minute, one.minutes, flight.carrier, flight.origin, flight.dest, flight.dep_delay)
