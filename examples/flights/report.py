"""The report in the terminal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import tidewire as tw
from totals import Totals

MANY = 1_000
"""Routes and carriers with fewer flights are left out of rankings."""


@dataclass
class Outcome:
    """Everything that a run found."""

    totals: Totals
    expected: Totals
    seconds: float
    plain_seconds: float
    differences: list[str]
    restarts: int
    dead: Counter[str]
    ledgers: dict[str, tw.Ledger]
    """By whose it is."""
    carriers: dict[str, str]
    airports: dict[str, str]
    notes: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """How many messages the actors took, according to their ledgers."""
        return sum(ledger.accepted for ledger in self.ledgers.values())

    def mean_delay(self, minutes: Counter[Any], flights: Counter[Any], key: object) -> float:
        """Return the mean delay at arrival, in minutes."""
        return minutes[key] / flights[key] if flights[key] else 0.0

    def worst_routes(self, most: int = 8) -> list[tuple[str, float, int]]:
        """Return the routes with the largest mean delay among those flown often."""
        totals = self.totals
        often = max(1, min(MANY, totals.flights["flown"] // 300))
        rows = [
            (route, self.mean_delay(totals.route_minutes, totals.route_flights, route), flights)
            for route, flights in totals.route_flights.items()
            if flights >= often
        ]
        return sorted(rows, key=lambda row: (-row[1], row[0]))[:most]


def findings(outcome: Outcome) -> list[str]:
    """Return what was found about the flights, line by line."""
    totals = outcome.totals
    counts = totals.flights
    out = [
        (
            f"{counts['all']:,} flights: {counts['flown']:,} flown, {counts['cancelled']:,} cancelled, "
            f"{counts['incomplete']:,} without an arrival"
        ),
        "",
        "Mean delay at arrival by carrier, in minutes",
    ]
    for carrier in sorted(
        totals.carrier_flights,
        key=lambda code: -outcome.mean_delay(totals.carrier_minutes, totals.carrier_flights, code),
    ):
        delay = outcome.mean_delay(totals.carrier_minutes, totals.carrier_flights, carrier)
        out.append(f"  {carrier}  {delay:6.1f}  {_bar(delay)} {outcome.carriers.get(carrier, '')}")
    out += ["", "Mean delay at arrival by scheduled hour of departure, in minutes"]
    for hour in sorted(totals.hour_flights):
        delay = outcome.mean_delay(totals.hour_minutes, totals.hour_flights, hour)
        out.append(f"  {hour:02}  {delay:6.1f}  {_bar(delay)}")
    out += ["", "Worst routes among those flown often"]
    out += [f"  {route}  {delay:6.1f} min, {flights:,} flights" for route, delay, flights in outcome.worst_routes()]
    late = sum(totals.alerts.values())
    out += ["", f"{late:,} departures an hour or more late; the subjects with most alerts"]
    out += [f"  {name:14} {count:6,}" for name, count in totals.alerts.most_common(6)]
    weather = ", ".join(f"{count:,} in {kind}" for kind, count in totals.late_in_weather.most_common())
    return [*out, f"  by the weather at their hour: {weather}"]


def accounts(outcome: Outcome) -> list[str]:
    """Return what became of the messages, how long it took, and whether the totals are right."""
    dead = ", ".join(f"{count:,} {reason}" for reason, count in sorted(outcome.dead.items())) or "none"
    out = [
        f"{outcome.restarts:,} restarts of the auditor, one for each record without an arrival; dead letters: {dead}",
        *(f"ledger of {who}: {ledger}" for who, ledger in outcome.ledgers.items()),
        (
            f"{outcome.messages:,} messages in {outcome.seconds:.2f} s: {outcome.messages / outcome.seconds:,.0f} a second, "
            f"files read meanwhile (the plain loop took {outcome.plain_seconds:.2f} s)"
        ),
        *outcome.notes,
    ]
    if outcome.differences:
        out += ["", f"DIFFERENT from the plain computation in {len(outcome.differences)} totals:"]
        out += [f"  {line}" for line in outcome.differences[:20]]
    else:
        out.append(f"all {len(outcome.totals):,} totals equal those of the plain single-threaded computation")
    return out


def _bar(delay: float) -> str:
    return "█" * max(0, round(delay)) if delay > 0 else ""
