"""The flights of the year by their days, with the times and places that a drawing needs."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import data
from data import Flight, Weather

DAY_MINUTES = 1_440
SPEED_KM_MINUTE = 13.0
"""Of an airliner, about 780 km/h."""
GROUND_MINUTES = 25.0
"""For taking off, and for landing."""
EARTH_KM = 6_371.0
# The file has no places of these.
CARIBBEAN = {
    "BQN": ("Rafael Hernandez", 18.495, -67.129),
    "PSE": ("Mercedita", 18.008, -66.563),
    "SJU": ("Luis Munoz Marin Intl", 18.439, -66.002),
    "STT": ("Cyril E King", 18.337, -64.973),
}


@dataclass
class Airport:
    """Where an airport is."""

    code: str
    name: str
    lat: float
    lon: float


@dataclass
class Scheduled:
    """A flight with the minute of the run in which it leaves, or is known not to, and the minutes
    that it takes.
    """

    minute: float
    minutes: float
    flight: Flight


class Year:
    """All flights, and who is where."""

    def __init__(
        self, days: dict[date, list[Flight]], airports: dict[str, Airport], weather: dict[tuple[str, str], Weather]
    ) -> None:
        self.days = days
        self.airports = airports
        self.weather = weather
        self.carriers = data.airlines()

    @classmethod
    def read(cls) -> Year:
        """Read the files, which takes some seconds.

        Raises:
            DataMissing: if they are not there.
        """
        days: dict[date, list[Flight]] = {}
        for flight in data.flights():
            # The same few texts 336,776 times.
            shared = flight._replace(
                carrier=sys.intern(flight.carrier),
                origin=sys.intern(flight.origin),
                dest=sys.intern(flight.dest),
                time_hour=sys.intern(flight.time_hour),
            )
            days.setdefault(_day(shared), []).append(shared)
        return cls(dict(sorted(days.items())), _airports(), data.weather())

    def schedule(self, first: date, count: int) -> list[Scheduled]:
        """Return the flights of some days in the order in which they leave."""
        found = []
        for number in range(count):
            flights = self.days.get(first + timedelta(days=number), [])
            by_hour: dict[int, list[Flight]] = {}
            for flight in flights:
                by_hour.setdefault(flight.hour, []).append(flight)
            for hour, some in by_hour.items():
                for place, flight in enumerate(some):
                    # The file has the hour. Those of one hour are spread over it.
                    planned = number * DAY_MINUTES + hour * 60 + place * 60 / len(some)
                    found.append(Scheduled(planned + (flight.dep_delay or 0), self._minutes(flight), flight))
        return sorted(found, key=lambda one: one.minute)

    def _minutes(self, flight: Flight) -> float:
        begin, end = self.airports.get(flight.origin), self.airports.get(flight.dest)
        return 120.0 if begin is None or end is None else GROUND_MINUTES + _km(begin, end) / SPEED_KM_MINUTE


def _day(flight: Flight) -> date:
    # The time is that of Greenwich, the hour that of New York: four or five less.
    at = datetime.strptime(flight.time_hour, "%Y-%m-%dT%H:%M:%SZ")
    return (at - timedelta(hours=(at.hour - flight.hour) % 24)).date()


def _airports() -> dict[str, Airport]:
    with (data.folder() / "airports.csv").open(encoding="utf-8", newline="") as file:
        found = {
            row["faa"]: Airport(row["faa"], row["name"].strip(), float(row["lat"]), float(row["lon"]))
            for row in csv.DictReader(file)
        }
    return found | {code: Airport(code, *place) for code, place in CARIBBEAN.items()}


def _km(one: Airport, other: Airport) -> float:
    a, b = math.radians(one.lat), math.radians(other.lat)
    between = math.radians(other.lon - one.lon)
    cosine = math.sin(a) * math.sin(b) + math.cos(a) * math.cos(b) * math.cos(between)
    return EARTH_KM * math.acos(max(-1.0, min(1.0, cosine)))
