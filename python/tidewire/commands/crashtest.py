"""``tidewire crashtest``: checks that acked messages survive kill -9."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import tidewire as tw

_FULL_CHECK_KILLS = 100
"""Number of kills between two full reads."""

_WRITER = """
import asyncio, sys
import tidewire as tw

async def main():
    async with tw.Node(data=sys.argv[1]) as node:
        stream = await node.stream("crashtest", subjects=["crashtest.>"], dedupe=0)
        first = int(sys.argv[2])
        while True:
            await asyncio.gather(*(stream.publish("crashtest.event", first + n) for n in range(50)))
            first += 50
            print(first, flush=True)

asyncio.run(main())
"""


def crashtest(data: Path, kills: int, seed: int, as_json: bool) -> int:
    """Kill a writer repeatedly, and check the stream each time. Return the exit code: 1 if an acked
    message is lost, duplicated or out of order.
    """
    if data.exists() and any(data.iterdir()):
        print(f"error: data: {data} is not empty: give a new folder", file=sys.stderr)
        return 1
    draw, began, acked, stored = random.Random(seed), time.monotonic(), 0, 0
    for number in range(1, kills + 1):
        acked = _run_writer(data, stored, draw.uniform(0.0, 0.15))
        # Earlier records are only read again at times, and at the end: full reads would take longer
        # with each kill.
        since = 0 if number % _FULL_CHECK_KILLS == 0 or number == kills else stored
        stored, problem = _verify(data, since)
        if problem is None and stored < acked:
            problem = f"{stored} are there"
        if problem is not None:
            print(f"error: kill {number} of seed {seed}: {acked} were acked, {problem}", file=sys.stderr)
            return 1
        if sys.stderr.isatty():
            print(f"\r{number} of {kills} kills, {stored} events", end="" if number < kills else "\n", file=sys.stderr)
    seconds = time.monotonic() - began
    text = f"{kills} kills, {stored} events, {acked} acked before the last: none lost, doubled or out of order ({seconds:.1f} s)"
    print(json.dumps({"kills": kills, "events": stored, "lost": 0, "seconds": round(seconds, 1)}) if as_json else text)
    return 0


def _verify(data: Path, since: int) -> tuple[int, str | None]:
    """Return the number of events, and a problem of the events after the first ``since``, or
    None.
    """
    expected = since
    with tw.Node(data=data) as node:
        stream = node.sync.stream("crashtest", subjects=["crashtest.>"], dedupe=0)
        for event in stream.read(start=since + 1):
            if (event.value, event.sequence) != (expected, expected + 1):
                return expected, f"and {event.value} is at {event.sequence} where {expected} ought to be"
            expected += 1
        messages = stream.info().messages
    return expected, None if messages == expected else f"and of {messages} events {expected} can be read"


def _run_writer(data: Path, first: int, seconds: float) -> int:
    """Run a writer, kill it ``seconds`` after its first ack, and return the total number of acked
    messages.
    """
    command = [sys.executable, "-c", _WRITER, str(data), str(first)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acked = first
    first_line = writer.stdout.readline()
    time.sleep(seconds)
    writer.kill()
    for line in [first_line, *writer.stdout]:
        # The kill may have truncated the last line.
        acked = int(line) if line.endswith("\n") else acked
    writer.wait()
    writer.stdout.close()
    return acked
