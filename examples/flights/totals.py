"""Totals of both computations: counts and minutes, as whole numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from data import Flight, Weather

LATE_MINUTES = 60


@dataclass
class Totals:
    """Every total of the report, by its key."""

    flights: Counter[str] = field(default_factory=Counter)
    """How many: "all", "flown", "cancelled", "incomplete"."""
    carrier_flights: Counter[str] = field(default_factory=Counter)
    carrier_minutes: Counter[str] = field(default_factory=Counter)
    hour_flights: Counter[int] = field(default_factory=Counter)
    hour_minutes: Counter[int] = field(default_factory=Counter)
    route_flights: Counter[str] = field(default_factory=Counter)
    route_minutes: Counter[str] = field(default_factory=Counter)
    departures: Counter[str] = field(default_factory=Counter)
    arrivals: Counter[str] = field(default_factory=Counter)
    alerts: Counter[str] = field(default_factory=Counter)
    """Late departures by subject, such as "delay.JFK.AA"."""
    late_in_weather: Counter[str] = field(default_factory=Counter)
    """Late departures by the weather at their hour."""

    def add(self, other: Totals) -> None:
        """Add the counts of another part."""
        for name in names():
            getattr(self, name).update(getattr(other, name))

    def maps(self) -> dict[str, dict[Any, int]]:
        """Return the counts as plain maps, which is how they travel between processes."""
        return {name: dict(getattr(self, name)) for name in names()}

    @classmethod
    def of(cls, maps: dict[str, dict[Any, int]]) -> Totals:
        """Return totals made of plain maps."""
        return cls(**{name: Counter(counts) for name, counts in maps.items()})

    def differences(self, other: Totals) -> list[str]:
        """Return a line for every total that is not the same."""
        lines = []
        for name in names():
            mine, theirs = getattr(self, name), getattr(other, name)
            lines += [
                f"{name}[{key!r}]: {mine[key]} here, {theirs[key]} there"
                for key in sorted(mine.keys() | theirs.keys(), key=str)
                if mine[key] != theirs[key]
            ]
        return lines

    def __len__(self) -> int:
        return sum(len(getattr(self, name)) for name in names())


def names() -> list[str]:
    """Return the names of the totals."""
    return [part.name for part in fields(Totals)]


def is_late(flight: Flight) -> bool:
    """True if a departure is late enough for an alert."""
    return flight.dep_delay is not None and flight.dep_delay >= LATE_MINUTES


def subject(flight: Flight) -> str:
    """Return the subject on which a late departure is published."""
    return f"delay.{flight.origin}.{flight.carrier}"


def kind_of_weather(weather: Weather | None) -> str:
    """Name the weather by what is worst about it."""
    if weather is None:
        return "unknown"
    if weather.visibility_miles < 3:
        return "fog"
    if weather.rain_inches > 0:
        return "rain"
    return "wind" if weather.wind_mph >= 20 else "fair"
