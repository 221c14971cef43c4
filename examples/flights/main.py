"""A year of flights through a system of actors, checked against a plain loop over the same files.

Run it with `make demo`, or `python examples/flights/main.py --help`. With `--processes` the flights
go through three processes too, joined by links.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path

import data
import plain
import tidewire as tw
from actors import FlightSystem
from children import ChildLost
from page import render
from report import Outcome, accounts, findings

INTERRUPTED = 130


def main() -> int:
    """Run the demonstration; return 0 if all totals agree."""
    options = parse()
    try:
        data.folder()
    except data.DataMissing as missing:
        print(f"flights: {missing}", file=sys.stderr)
        return 2
    # Each record without an arrival is reported at the end; the log would write over the progress
    # line.
    logging.getLogger("tidewire").setLevel(logging.CRITICAL)
    try:
        outcome = asyncio.run(run(options.flights))
        tell(outcome, None if options.no_page else options.out)
        if not options.processes or outcome.differences:
            return 1 if outcome.differences else 0
        return in_processes(options.flights, outcome)
    except KeyboardInterrupt:
        return INTERRUPTED


def tell(outcome: Outcome, page: Path | None) -> None:
    """Print the report, and write it as a page."""
    print("\n".join([*findings(outcome), "", *accounts(outcome)]))
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render(outcome), encoding="utf-8")
        print(f"the same with pictures: {page}")


def in_processes(limit: int | None, one: Outcome) -> int:
    """Send the flights again, to specialists in another process, and compare with the run in
    one.
    """
    # Links need packages that the run in one process does without.
    import over_links

    print("\nthe same in three processes: a hub, the specialists, and this one, the coordinator", flush=True)
    try:
        three = asyncio.run(over_links.run(limit, one, show_progress))
    except (ChildLost, tw.TidewireError) as lost:
        print(f"\nflights: {lost}", file=sys.stderr)
        return 1
    print("\n".join([*accounts(three), compared(one, three)]))
    return 1 if three.differences else 0


def compared(one: Outcome, three: Outcome) -> str:
    """Say how the rates of the two runs compare, whichever was higher."""
    rates = [outcome.totals.flights["all"] / outcome.seconds for outcome in (one, three)]
    return (
        f"in one process {rates[0]:,.0f} flights a second, in three {rates[1]:,.0f}: {rates[1] / rates[0]:.2f} times as many, "
        f"on {os.cpu_count()} processors; one run each, without the start of the processes"
    )


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--flights", type=_whole, default=None, metavar="N", help="only the first N flights of the file"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/flights.html"), help="where the page goes (default: %(default)s)"
    )
    parser.add_argument(
        "--processes", action="store_true", help="then send them again through three processes, and compare"
    )
    parser.add_argument("--no-page", action="store_true", help="write no page")
    return parser.parse_args()


async def run(limit: int | None) -> Outcome:
    """Send the flights through the actors, then compute the same totals plainly."""
    weather = data.weather()
    node = tw.Node(name="flights")
    async with node:
        system = FlightSystem(node, weather, show_progress)
        try:
            began = time.perf_counter()
            await system.feed(data.flights(limit))
            totals = await system.finish()
            seconds = time.perf_counter() - began
        except asyncio.CancelledError:
            await stop_early(system)
            raise
        dead = Counter(node.statistics()["dead_letters"])
    show_progress(system.accepted, seconds, last=True)
    assert node.ledger is not None
    began = time.perf_counter()
    expected = plain.compute(data.flights(limit), weather)
    return Outcome(
        totals=totals,
        expected=expected,
        seconds=seconds,
        plain_seconds=time.perf_counter() - began,
        differences=[*totals.differences(expected), *system.listeners.differences(expected)],
        restarts=system.specialists.restarts,
        dead=dead,
        ledgers={"the auditor": system.specialists.ledger, "all others": node.ledger},
        carriers=data.airlines(),
        airports=data.airports(),
    )


async def stop_early(system: FlightSystem) -> None:
    """End cleanly on Ctrl-C: what was sent is handled, and the ledger is shown."""
    print(f"\ninterrupted after {system.accepted:,} flights: finishing what was sent", file=sys.stderr)
    await system.finish()
    ledger = await system.node.stop()
    print(f"auditor: {system.specialists.ledger}\nall others: {ledger}", file=sys.stderr)


def show_progress(flights: int, seconds: float, last: bool = False) -> None:
    """Write over the progress line, if somebody watches."""
    if sys.stderr.isatty():
        end = "\n" if last else ""
        print(
            f"\r\033[K{flights:>9,} flights  {flights / max(seconds, 0.001):>9,.0f}/s  {seconds:5.1f} s",
            end=end,
            file=sys.stderr,
            flush=True,
        )


def _whole(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of flights: give a whole number, 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
