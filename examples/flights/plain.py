"""The same totals in one loop: no actors, no threads. The totals of the actors must equal these."""

from __future__ import annotations

from collections.abc import Iterable

from data import Flight, Weather
from totals import Totals, is_late, kind_of_weather, subject


def compute(flights: Iterable[Flight], weather: dict[tuple[str, str], Weather]) -> Totals:
    """Add up all flights, one after another."""
    totals = Totals()
    for flight in flights:
        totals.flights["all"] += 1
        if flight.cancelled:
            totals.flights["cancelled"] += 1
            continue
        if flight.arr_delay is None:
            totals.flights["incomplete"] += 1
            continue
        totals.flights["flown"] += 1
        totals.carrier_flights[flight.carrier] += 1
        totals.carrier_minutes[flight.carrier] += flight.arr_delay
        totals.hour_flights[flight.hour] += 1
        totals.hour_minutes[flight.hour] += flight.arr_delay
        totals.route_flights[flight.route] += 1
        totals.route_minutes[flight.route] += flight.arr_delay
        totals.departures[flight.origin] += 1
        totals.arrivals[flight.dest] += 1
        if is_late(flight):
            totals.alerts[subject(flight)] += 1
            totals.late_in_weather[kind_of_weather(weather.get((flight.origin, flight.time_hour)))] += 1
    return totals
