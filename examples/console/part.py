"""A program of the console's demonstration: ``part.py URL flights|desk|races``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent
sys.path += [str(EXAMPLES / "flights"), str(EXAMPLES / "desk"), str(EXAMPLES / "bingo")]

import data
import numbers_of_workers as numbers
import tidewire as tw
from actors import FlightSystem
from coordinator import Coordinator
from race import Standing, race
from specialists import Delays, History, Question, Routes, Weather

FLIGHTS_PER_S, PART = 2_000, 100
RACES, RACES_PER_S, TAKEN_OFF = 100_000, 20, 0.02
DESTINATIONS = ("LAX", "SFO", "BOS", "MCO", "ATL")


async def flights(node: tw.Node) -> None:
    """Send the flights of a year through the actors, some thousands in a second."""
    system = FlightSystem(node, data.weather(), lambda accepted, seconds: None)
    print("flying", flush=True)
    year = data.flights()
    while part := list(islice(year, PART)):
        await system.feed(part)
        await asyncio.sleep(PART / FLIGHTS_PER_S)
    await node.run_forever()


async def desk(node: tw.Node) -> None:
    """Ask a desk of agents for the best carrier to a place, one question after another."""
    resampling = node.pool(numbers.spread, workers=2, kind="process", name="resampling")
    history = node.pool(numbers.spread, workers=1, kind="process", name="history", max_deliveries=1)
    for specialist in (Routes(), Delays(resampling), Weather(), History(history)):
        node.agent(specialist, id=specialist.capabilities[0], concurrency=2)
    node.agent(Coordinator(8.0), id="coordinator")
    traveller = node.agent(lambda payload: None, id="traveller")
    print("asking", flush=True)
    try:
        while True:
            for place in DESTINATIONS:
                await traveller.request(Question("JFK", place), to="coordinator", timeout=30)
    finally:
        # Nobody waits for those who are late.
        await asyncio.gather(*(pool.stop(drain=False, timeout=0) for pool in (resampling, history)))


def slow_race(run: tw.Run) -> list[Standing]:
    """Race once, some times in a second; a few boards are taken off the table."""
    time.sleep(1 / RACES_PER_S)
    result = race(run)
    if run.random.random() < TAKEN_OFF:
        raise LookupError("the board was taken off the table")
    return result


async def races(node: tw.Node) -> None:
    """Run a campaign of races with two workers."""
    with tempfile.TemporaryDirectory() as folder:
        campaign = tw.campaign(slow_race, runs=RACES, seed=7, name="races", store=f"{folder}/races.db", attempts=1)
        print("racing", flush=True)
        await campaign.run_async(2, progress=False)


async def main(url: str, role: str) -> None:
    """Join the hub, and play one role."""
    async with tw.Node(url, name=role) as node:
        await {"flights": flights, "desk": desk, "races": races}[role](node)


if __name__ == "__main__":
    tw.run(main(*sys.argv[1:]))
