"""The specialists: each knows one thing about flights, and says so by a capability."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

import data
import numbers_of_workers as numbers
import tidewire as tw

WINTER = ("01", "02", "12")
RESAMPLES = 400
SLOW_RESAMPLES = 400_000


@dataclass(frozen=True)
class Question:
    """Which carrier should a traveller choose?"""

    origin: str
    dest: str
    months: tuple[str, ...] = WINTER


@dataclass(frozen=True)
class Carrier:
    """How one carrier did on a route."""

    code: str
    flights: int
    mean_delay: float
    low: float
    high: float
    late_share: float


class Routes(tw.Agent):
    """Reads the flights of a route, and shares them with whoever needs them."""

    type = "specialist"
    capabilities = ("routes",)

    @tw.handle
    async def on_question(self, question: Question) -> dict[str, dict[str, float]]:
        """Return flights and cancellations by carrier."""
        flights = await asyncio.to_thread(_flights_of, question)
        delays, hours = defaultdict(list), defaultdict(list)
        for flight in flights:
            if flight.arr_delay is not None:
                delays[flight.carrier].append(flight.arr_delay)
                hours[flight.time_hour].append(flight.arr_delay)
        await self.share({"delays": dict(delays), "hours": dict(hours)}, to=["delays", "weather", "history"])
        total, cancelled = Counter(f.carrier for f in flights), Counter(f.carrier for f in flights if f.cancelled)
        return {code: {"flights": count, "cancelled": cancelled[code] / count} for code, count in total.items()}


class WithFlights(tw.Agent):
    """A specialist that works on the flights that another one shares."""

    type = "specialist"

    def __init__(self) -> None:
        self._shared: asyncio.Future[dict[str, dict[str, list[int]]]] | None = None

    @tw.handle(kind="context")
    async def on_context(self, context: dict[str, dict[str, list[int]]]) -> None:
        """Take what is shared."""
        future = self._flights()
        if not future.done():
            future.set_result(context)

    def _flights(self) -> asyncio.Future[dict[str, dict[str, list[int]]]]:
        if self._shared is None:
            self._shared = asyncio.get_running_loop().create_future()
        return self._shared


class Delays(WithFlights):
    """Computes how late each carrier arrives, on all cores."""

    capabilities = ("delays",)

    def __init__(self, pool: tw.Pool, resamples: int = RESAMPLES) -> None:
        super().__init__()
        self._pool = pool
        self._resamples = resamples

    @tw.handle
    async def on_question(self, question: Question) -> list[Carrier]:
        """Return the carriers, the most punctual first."""
        delays = (await self._flights())["delays"]
        codes = sorted(delays)
        spreads = [self._pool.submit(delays[code], self._resamples, seed) for seed, code in enumerate(codes)]
        bounds = await asyncio.gather(*spreads)
        carriers = [
            Carrier(code, len(delays[code]), fmean(delays[code]), *bound, numbers.late_share(delays[code]))
            for code, bound in zip(codes, bounds, strict=True)
        ]
        return sorted(carriers, key=lambda carrier: carrier.mean_delay)


class History(Delays):
    """The slow one: it wants a thousand times as many resamples, and is still at them when the time
    is up.
    """

    capabilities = ("history",)

    def __init__(self, pool: tw.Pool) -> None:
        super().__init__(pool, SLOW_RESAMPLES)


class Weather(WithFlights):
    """Knows what the weather at the origin does to arrivals."""

    capabilities = ("weather",)

    def __init__(self) -> None:
        super().__init__()
        self._known = data.weather()

    @tw.handle
    async def on_question(self, question: Question) -> dict[str, float]:
        """Return the share of flights in bad weather, and the mean delays in bad and in good
        weather.
        """
        hours = (await self._flights())["hours"]
        kinds: dict[bool, list[int]] = {True: [], False: []}
        for hour, delays in hours.items():
            known = self._known.get((question.origin, hour))
            if known is not None:
                kinds[_is_bad(known)] += delays
        bad, good = kinds[True], kinds[False]
        share = len(bad) / max(1, len(bad) + len(good))
        return {"bad_share": share, "bad_delay": fmean(bad or [0]), "good_delay": fmean(good or [0])}


class Taxiing(tw.Agent):
    """The one that dies: the library behind it crashes, and takes the worker process with it."""

    type = "specialist"
    capabilities = ("taxiing",)

    def __init__(self, pool: tw.Pool) -> None:
        self._pool = pool

    @tw.handle
    async def on_question(self, question: Question) -> float:
        """Return the mean minutes on the ground."""
        minutes: float = await self._pool.submit(question.origin)
        return minutes


def _flights_of(question: Question) -> list[data.Flight]:
    return list(_chosen(data.flights(), question))


def _chosen(flights: Iterable[data.Flight], question: Question) -> Iterable[data.Flight]:
    return (
        flight
        for flight in flights
        if flight.origin == question.origin
        and flight.dest == question.dest
        and flight.time_hour[5:7] in question.months
    )


def _is_bad(weather: data.Weather) -> bool:
    return weather.visibility_miles < 3 or weather.wind_mph > 25 or weather.rain_inches > 0.05
