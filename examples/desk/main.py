"""A desk of agents answers a question about a year of flights, although one specialist is slow and
one dies.

Which carrier should a traveller from JFK to a given airport choose in winter? Run it with `make
demo`, or `python examples/desk/main.py --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path
from statistics import fmean

# The reader of the files is the one of the flights demonstration.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "flights"))

import data
import numbers_of_workers as numbers
import tidewire as tw
from coordinator import PARTS, Answer, Coordinator
from specialists import Carrier, Delays, History, Question, Routes, Taxiing, Weather


def main() -> int:
    """Ask the desk; return 0 if its answer agrees with a plain computation."""
    options = parse()
    # Slow and dying workers are part of the story, and its end reports them.
    logging.getLogger("tidewire").setLevel(logging.CRITICAL)
    try:
        data.folder()
        answer, ledger = asyncio.run(run(Question(options.origin, options.dest), options.deadline))
    except data.DataMissing as missing:
        print(f"desk: {missing}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print("\n".join(report(answer)))
    print(f"ledger: {ledger}")
    return check(answer, ledger)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--origin", default="JFK", help="where the traveller starts (default: %(default)s)")
    parser.add_argument("--dest", default="LAX", help="where the traveller goes (default: %(default)s)")
    parser.add_argument("--deadline", type=_seconds, default=4.0, help="seconds for the answer (default: %(default)s)")
    return parser.parse_args()


async def run(question: Question, deadline_s: float) -> tuple[Answer, tw.Ledger]:
    """Put the desk together, and ask it."""
    node = tw.Node(name="desk")
    async with node:
        resampling = node.pool(numbers.spread, workers=2, kind="process", name="resampling")
        history = node.pool(numbers.spread, workers=1, kind="process", name="history", max_deliveries=1)
        taxiing = node.pool(numbers.taxi_times, workers=1, kind="process", name="taxiing")
        for specialist in (Routes(), Delays(resampling), Weather(), History(history), Taxiing(taxiing)):
            # Two messages at once: while the question waits for what another specialist shares,
            # that can come in.
            node.agent(specialist, id=specialist.capabilities[0], concurrency=2)
        node.agent(Coordinator(deadline_s), id="coordinator")
        traveller = node.agent(lambda payload: None, id="traveller")
        print(f"{question.origin} to {question.dest} in winter: which carrier? asked {len(PARTS)} specialists")
        answer: Answer = await traveller.request(question, to="coordinator", timeout=deadline_s + 10)
        # Nobody waits for those who are late any more.
        await history.stop(drain=False, timeout=0)
        await asyncio.gather(*(node.agents.find(part).stop(drain=False, timeout=1) for part in answer.missing))
    assert node.ledger is not None
    return answer, node.ledger


def report(answer: Answer) -> list[str]:
    """Return the answer as text."""
    names = data.airlines()
    lines = []
    for part in PARTS:
        state = f"is missing: {answer.missing[part]}" if part in answer.missing else "answered"
        lines.append(f"  {answer.seconds[part]:5.2f} s  {part:<8} {state}")
    carriers: list[Carrier] = answer.parts.get("delays", [])
    routes = answer.parts.get("routes", {})
    for carrier in carriers:
        cancelled = routes.get(carrier.code, {}).get("cancelled")
        lines.append(
            f"  {names[carrier.code]:<24} {carrier.flights:>5,} flights, {carrier.mean_delay:+6.1f} min "
            f"({carrier.low:+.1f} to {carrier.high:+.1f}), {carrier.late_share:6.1%} over half an hour late"
            + ("" if cancelled is None else f", {cancelled:.1%} cancelled")
        )
    weather = answer.parts.get("weather")
    if weather is not None:
        lines.append(
            f"  bad weather for {weather['bad_share']:.1%} of the flights: {weather['bad_delay']:+.1f} min instead of "
            f"{weather['good_delay']:+.1f}"
        )
    lines.append(f"take {names[carriers[0].code]}" if carriers else "nobody knows: ask again with a later --deadline")
    if answer.missing:
        lines[-1] += f" (said without {' and '.join(answer.missing)})"
    return lines


def check(answer: Answer, ledger: tw.Ledger) -> int:
    """Compare with a plain loop over the same files, and say what differs."""
    wrong = [] if ledger.balanced else ["the ledger does not balance"]
    delays: dict[str, list[int]] = {}
    question = answer.question
    for flight in data.flights():
        if (
            (flight.origin, flight.dest) == (question.origin, question.dest)
            and flight.time_hour[5:7] in question.months
            and flight.arr_delay is not None
        ):
            delays.setdefault(flight.carrier, []).append(flight.arr_delay)
    if "delays" in answer.parts and len(answer.parts["delays"]) != len(delays):
        wrong.append(f"the plain loop finds {len(delays)} carriers")
    for carrier in answer.parts.get("delays", []):
        plain = delays.get(carrier.code, [])
        if len(plain) != carrier.flights or abs(fmean(plain) - carrier.mean_delay) > 1e-9:
            wrong.append(f"{carrier.code}: the plain loop finds {len(plain)} flights")
    if answer.missing.keys() != {"history", "taxiing"}:
        wrong.append(f"missing is {sorted(answer.missing)}, and not history and taxiing")
    print("\n".join(f"wrong: {line}" for line in wrong) or "a plain loop over the same files finds the same")
    return 1 if wrong else 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 3_600:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: give more than 0 and up to 3,600 seconds")
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())
