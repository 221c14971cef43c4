"""Failover times of a single active service whose active process is killed: a distribution, at a
hub and on NATS.

``python bench/tidewire_bench/failover.py --rounds 50``; it starts a NATS server of its own. A round
starts a process that holds the service, has an instance of this process stand by, kills the other
with SIGKILL at a random moment of its lease, and measures until the one here has answered a call:
of another node at the hub, of its own on NATS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tidewire as tw

SERVERS = Path(__file__).parents[2] / "tools" / "servers.py"


class Matching(tw.Service):
    """Service with one active instance, for the failover."""

    @tw.method
    async def who(self) -> int:
        """Return which process it is."""
        return os.getpid()


async def hold(url: str) -> None:
    """Be active, until killed."""
    async with tw.Node(url) as node:
        served = await node.serve(Matching(), active="single")
        await served.active()
        print("active", flush=True)
        await node.run_forever()


async def rounds(url: str, count: int, calls: bool, seed: int) -> list[float]:
    """Kill the active instance again and again, and return the seconds until the next one handled
    something.
    """
    dice, took = random.Random(seed), []
    async with tw.Node(url) as standing, tw.Node(url) as calling:
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(
                sys.executable, __file__, "--hold", url, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert process.stdout is not None
            await process.stdout.readline()
            served = await standing.serve(Matching(), active="single")
            if calls:
                assert await calling.client(Matching).who() == process.pid
            await asyncio.sleep(0.2 + dice.random())
            process.send_signal(signal.SIGKILL)
            begun = time.perf_counter()
            if calls:
                while True:
                    try:
                        assert await calling.client(Matching).with_(timeout=60.0).who() == os.getpid()
                        break
                    except tw.LinkLost:
                        # The call was sent to the process before its end was known.
                        continue
            else:
                await served.active(60.0)
                assert await standing.client(Matching).who() == os.getpid()
            took.append(time.perf_counter() - begun)
            await process.wait()
            await served.stop()
    return took


def told(name: str, took: list[float]) -> dict[str, Any]:
    """Print what a home takes, and return it."""
    ordered = sorted(took)
    at = {
        "rounds": len(took),
        "median_s": statistics.median(ordered),
        "p99_s": ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))],
        "min_s": ordered[0],
        "max_s": ordered[-1],
        "load": os.getloadavg()[0],
    }
    print(name, json.dumps({key: round(value, 4) for key, value in at.items()}), flush=True)
    return at


async def measure(count: int, seed: int) -> None:
    """Measure a hub."""
    with tempfile.TemporaryDirectory() as folder:
        async with tw.Node(data=folder) as hub:
            told("hub", await rounds(hub.listen("tide://127.0.0.1:0").url, count, True, seed))


def server() -> tuple[subprocess.Popen[str], str]:
    """Start a NATS server. It ends with its standard input."""
    keeper = subprocess.Popen(
        [sys.executable, str(SERVERS), "nats"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert keeper.stdout is not None
    return keeper, json.loads(keeper.stdout.readline())["TIDEWIRE_TEST_NATS"]


def measure_all(count: int, seed: int, homes: str) -> None:
    """Measure the homes."""
    if homes != "nats":
        asyncio.run(measure(count, seed))
    if homes == "hub":
        return
    keeper, url = server()
    try:
        told("nats", asyncio.run(rounds(url, count, False, seed)))
    finally:
        keeper.communicate(timeout=60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", choices=("hub", "nats", "both"), default="both")
    parser.add_argument("--hold", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.hold:
        asyncio.run(hold(given.hold))
    else:
        measure_all(given.rounds, given.seed, given.home)
