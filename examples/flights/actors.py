"""The flights as messages through a system of actors.

reader --> auditor --> router --+--> one actor per carrier
           (fails on            +--> one actor per airport
            dirty records,      +--> joiner <--ask--> weather
            restarted)          +--> publishes delay.JFK.AA --> subscribers
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import tidewire as tw
from data import Flight, Weather
from totals import Totals, is_late, kind_of_weather, subject

# Every record without an arrival makes the auditor fail once. There are 1,175 in the files.
AUDITOR = tw.Supervision(on_failure="restart", max_restarts=5_000, window_ms=3_600_000, backoff_ms=0)

JOINS = 64
"""Flights that wait for their weather at the same time."""

ALERTS_WAITING = 100_000
"""More than all flights that can be under way: an event that finds no room is lost."""


class Supervisor:
    """Starts the auditor as its child, and is told when it ends."""

    def __init__(self) -> None:
        self.ended: tw.Terminated | None = None

    def started(self, ctx: tw.Context) -> None:
        auditor = ctx.spawn(Auditor, name="auditor", supervision=AUDITOR)
        ctx.watch(auditor)

    def receive(self, message: tw.Terminated | str) -> tw.Terminated | None:
        if isinstance(message, tw.Terminated):
            self.ended = message
        return self.ended


class Auditor:
    """Lets complete records pass. One that left and never arrived is an error: it costs the auditor
    its state.
    """

    def __init__(self) -> None:
        self.passed_since_restart = 0

    def receive(self, flight: Flight, ctx: tw.Context) -> None:
        if not flight.cancelled and flight.arr_delay is None:
            raise ValueError(f"{flight.carrier} {flight.route} at {flight.time_hour} left, and has no arrival")
        self.passed_since_restart += 1
        ctx.node.sync.send(ctx.node.lookup("router"), flight)


class Router:
    """Gives each flight to the actors that it concerns, which it spawns as it meets them.

    Args:
        joiner: Actor that asks for the weather of late departures, unless another process does.
    """

    def __init__(self, joiner: tw.ActorRef | None) -> None:
        self.joiner = joiner
        self.actors: dict[str, tw.ActorRef] = {}
        self.totals = Totals()

    def receive(self, flight: Flight | str, ctx: tw.Context) -> object:
        if not isinstance(flight, Flight):
            return self.totals, list(self.actors.values())
        self.totals.flights["all"] += 1
        if flight.cancelled:
            self.totals.flights["cancelled"] += 1
            return None
        self.totals.flights["flown"] += 1
        send = ctx.node.sync.send
        send(self.actor(ctx, Carrier, flight.carrier), flight)
        send(self.actor(ctx, Airport, flight.origin), ("departure", flight.origin))
        send(self.actor(ctx, Airport, flight.dest), ("arrival", flight.dest))
        if is_late(flight):
            ctx.node.publish(subject(flight), flight.dep_delay)
            if self.joiner is not None:
                send(self.joiner, flight)
        return None

    def actor(self, ctx: tw.Context, kind: type, code: str) -> tw.ActorRef:
        name = f"{kind.__name__.lower()}-{code}"
        if name not in self.actors:
            self.actors[name] = ctx.node.spawn(kind, name=name)
        return self.actors[name]


class Carrier:
    """Adds up the flights of one carrier; takes what waits in one call."""

    def __init__(self) -> None:
        self.totals = Totals()

    def handle_batch(self, flights: list[Flight]) -> None:
        totals = self.totals
        for flight in flights:
            assert flight.arr_delay is not None
            totals.carrier_flights[flight.carrier] += 1
            totals.carrier_minutes[flight.carrier] += flight.arr_delay
            totals.hour_flights[flight.hour] += 1
            totals.hour_minutes[flight.hour] += flight.arr_delay
            totals.route_flights[flight.route] += 1
            totals.route_minutes[flight.route] += flight.arr_delay

    def receive(self, question: str) -> Totals:
        return self.totals


class Airport:
    """Counts what leaves and what lands."""

    def __init__(self) -> None:
        self.totals = Totals()

    def receive(self, event: tuple[str, str] | str) -> Totals | None:
        if isinstance(event, str):
            return self.totals
        kind, code = event
        (self.totals.departures if kind == "departure" else self.totals.arrivals)[code] += 1
        return None


class Joiner:
    """Asks for the weather of every late departure, up to 64 at a time.

    Args:
        ask: Asks for the weather at an airport in an hour.
    """

    def __init__(self, ask: Callable[[tuple[str, str]], Awaitable[Weather | None]]) -> None:
        self.ask = ask
        self.totals = Totals()
        self.asking = 0
        self.answered = asyncio.Event()

    async def receive(self, flight: Flight | str) -> Totals | None:
        if not isinstance(flight, Flight):
            return await self.when_answered()
        self.asking += 1
        try:
            weather = await self.ask((flight.origin, flight.time_hour))
            self.totals.late_in_weather[kind_of_weather(weather)] += 1
        finally:
            self.asking -= 1
            self.answered.set()
        return None

    async def when_answered(self) -> Totals:
        # Flights that came before the question for the totals may still wait for their weather.
        while self.asking:
            self.answered.clear()
            await self.answered.wait()
        return self.totals


class Alerts:
    """Counts late departures by the subject that they were published on."""

    def __init__(self) -> None:
        self.totals = Totals()

    def receive(self, minutes: int | str, ctx: tw.Context) -> Totals | None:
        if isinstance(minutes, str):
            return self.totals
        self.totals.alerts[ctx.subject] += 1
        return None


class Listeners:
    """Those who hear of late departures: one of all, and one of those at JFK."""

    def __init__(self, node: tw.Node) -> None:
        self.alerts = node.spawn(Alerts, name="alerts", mailbox=ALERTS_WAITING)
        node.subscribe("delay.>", self.alerts)
        self.kennedy: Counter[str] = Counter()
        node.subscribe("delay.JFK.*", node.spawn(self._at_kennedy, mailbox=ALERTS_WAITING))

    def _at_kennedy(self, minutes: int, ctx: tw.Context) -> None:
        self.kennedy[ctx.subject] += 1

    def differences(self, expected: Totals) -> list[str]:
        """Compare what the one at JFK heard with the alerts of that airport."""
        wanted = Counter({name: count for name, count in expected.alerts.items() if name.startswith("delay.JFK.")})
        return [] if self.kennedy == wanted else [f"alerts at JFK: {self.kennedy} here, {wanted} there"]


class Specialists:
    """Those who audit and count flights, and how they are finished and asked."""

    def __init__(self, node: tw.Node, joiner: tw.ActorRef | None) -> None:
        self.node = node
        self.router = node.spawn(Router, joiner, name="router")
        self.supervisor = node.spawn(Supervisor, name="supervisor")
        self.restarts = 0
        self.audited: tw.Ledger | None = None

    async def auditor(self) -> tw.ActorRef:
        """Return who takes the flights."""
        # The supervisor answers only after its start hook has run, which spawned the auditor.
        await self.supervisor.ask("ready")
        auditor = self.node.lookup("auditor")
        assert auditor is not None
        return auditor

    async def finish(self) -> Totals:
        """Let each stage handle everything before the next one is asked. Return what they found."""
        auditor = await self.auditor()
        self.audited = await auditor.stop()
        self.restarts = auditor.statistics()["restarts"]
        totals: Totals
        totals, found = await self.router.ask("totals")
        for ref in found:
            totals.add(await ref.ask("totals"))
        totals.flights["all"] += self.restarts
        totals.flights["incomplete"] = self.restarts
        return totals

    @property
    def ledger(self) -> tw.Ledger:
        """Stop report of the auditor, which ends before the others."""
        assert self.audited is not None
        return self.audited


class FlightSystem:
    """All actors of the demonstration, and how they are fed, finished and asked."""

    def __init__(
        self, node: tw.Node, weather: dict[tuple[str, str], Weather], show: Callable[[int, float], None]
    ) -> None:
        self.node = node
        self.began = time.perf_counter()
        self.accepted = 0
        self.weather = node.spawn(weather.get, name="weather")
        self.joiner = node.spawn(Joiner, self.weather.ask, name="joiner", concurrency=JOINS)
        self.specialists = Specialists(node, self.joiner)
        self.listeners = Listeners(node)
        self.timer = show_often(node, lambda: show(self.accepted, time.perf_counter() - self.began))

    async def feed(self, flights: Iterable[Flight]) -> None:
        """Send every flight to the auditor, and wait whenever its mailbox is full."""
        auditor = await self.specialists.auditor()
        for flight in flights:
            await auditor.send(flight)
            self.accepted += 1

    async def finish(self) -> Totals:
        """Let everything be handled, and return what was found."""
        totals = await self.specialists.finish()
        for ref in (self.joiner, self.listeners.alerts):
            totals.add(await ref.ask("totals"))
        self.timer.cancel()
        return totals


def show_often(node: tw.Node, show: Callable[[], None]) -> tw.Timer:
    """Call a function five times a second."""
    return node.schedule(0.1, node.spawn(lambda _: show(), name="progress"), "tick", every=0.2)
