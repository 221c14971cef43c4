"""A year of flights through a system of actors, checked against a plain loop over the same files.

Run it with `make demo`, or `python examples/flights/main.py --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections import Counter
from pathlib import Path

import data
import plain
import tidewire as tw
from actors import FlightSystem
from page import render
from report import Outcome, lines
from totals import Totals

INTERRUPTED = 130


def main() -> int:
    """Run the demonstration; return 0 if all totals agree."""
    options = parse()
    try:
        data.folder()
    except data.DataMissing as missing:
        print(f"flights: {missing}", file=sys.stderr)
        return 2
    # Each record without an arrival is reported at the end; the log would write over the progress line.
    logging.getLogger("tidewire").setLevel(logging.CRITICAL)
    try:
        outcome = asyncio.run(run(options.flights))
    except KeyboardInterrupt:
        return INTERRUPTED
    print("\n".join(lines(outcome)))
    if not options.no_page:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(render(outcome), encoding="utf-8")
        print(f"the same with pictures: {options.out}")
    return 1 if outcome.differences else 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--flights", type=_whole, default=None, metavar="N", help="only the first N flights of the file"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/flights.html"), help="where the page goes (default: %(default)s)"
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
        messages = sum(actor["handled"] for actor in node.statistics()["actors"]) + system.ledgers["auditor"].accepted
        dead = Counter(node.statistics()["dead_letters"])
    show_progress(system.accepted, seconds, last=True)
    ledger = node.ledger
    assert ledger is not None
    began = time.perf_counter()
    expected = plain.compute(data.flights(limit), weather)
    return Outcome(
        totals=totals,
        seconds=seconds,
        plain_seconds=time.perf_counter() - began,
        differences=[*totals.differences(expected), *kennedy_differences(system, expected)],
        restarts=system.restarts,
        messages=messages,
        dead=dead,
        auditor=system.ledgers["auditor"],
        ledger=ledger,
        carriers=data.airlines(),
        airports=data.airports(),
    )


async def stop_early(system: FlightSystem) -> None:
    """End cleanly on Ctrl-C: what was sent is handled, and the ledger is shown."""
    print(f"\ninterrupted after {system.accepted:,} flights: finishing what was sent", file=sys.stderr)
    await system.finish()
    ledger = await system.node.stop()
    print(f"auditor: {system.ledgers['auditor']}\nall others: {ledger}", file=sys.stderr)


def kennedy_differences(system: FlightSystem, expected: Totals) -> list[str]:
    """Compare what the subscriber of "delay.JFK.*" saw with the alerts of that airport."""
    wanted = Counter({name: count for name, count in expected.alerts.items() if name.startswith("delay.JFK.")})
    return [] if system.kennedy == wanted else [f"alerts at JFK: {system.kennedy} here, {wanted} there"]


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
