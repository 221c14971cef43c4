"""A burst of calls in Berlin that spills over to Paris, while Paris is killed and returns.

Run it with `make demo`, or `python examples/two_sites/main.py`. Two hubs run in two processes, and
Paris is the reserve of a service of Berlin. The chart shows where the calls of each half second
ran. It ends with 1 if the burst did not spill over, or calls did not return.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections import Counter
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import tidewire as tw
from site_hub import CALL_S, CALLS

STEP_S, STEPS_MAX, ANYWHERE = 0.5, 60, "tide://127.0.0.1:0"
CAPACITY = int(CALLS / CALL_S)
CALM, BURST = CAPACITY // 2, CAPACITY * 7 // 4
"""Calls in a second: half of what one site can do, and nearly what both can do."""
MARKS = {"berlin": "█", "paris": "▒", "refused": "×"}


@dataclass
class Step:
    """Half a second of calls: where they ran, and how long they took."""

    phase: str
    places: Counter[str] = field(default_factory=Counter)
    took_ms: list[float] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def show(self, at_s: float, before: Awaitable[None]) -> None:
        """Print a row once the calls have ended, behind the row before, with a mark for every four
        calls.
        """
        await asyncio.gather(before, *self.tasks)
        p50 = statistics.median(self.took_ms or [0.0])
        counts = "".join(f"{self.places[place]:>9}" for place in MARKS)
        bar = "".join(mark * round(self.places[place] / 4) for place, mark in MARKS.items())
        print(f"{at_s:6.1f}  {self.phase:<13}{counts}{p50:>7.0f} ms  {bar}", flush=True)

    async def call(self, pricing: tw.Client, rate: int, begun: float) -> None:
        """Make the calls, evenly spaced."""
        for number in range(round(rate * STEP_S)):
            await asyncio.sleep(max(0.0, begun + number / rate - perf_counter()))
            self.tasks.append(asyncio.ensure_future(self.ask(pricing, number)))

    async def ask(self, pricing: tw.Client, number: int) -> None:
        """Make a call, and note where it ran."""
        begun = perf_counter()
        try:
            self.places[await pricing.quote(number)] += 1
            self.took_ms.append((perf_counter() - begun) * 1e3)
        except (tw.Overloaded, tw.LinkLost):
            self.places["refused"] += 1


class Paris:
    """The hub that is killed and started again."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack, self.url = stack, ANYWHERE

    async def start(self) -> None:
        """Start it, at its old place if it has been there."""
        self.process, self.url = await started(self.stack, "paris", self.url)

    async def kill(self) -> None:
        """End it as a power cut does."""
        self.process.kill()


async def started(stack: AsyncExitStack, *arguments: str) -> tuple[asyncio.subprocess.Process, str]:
    """Start a hub, and return its process and its URL."""
    program, pipe, nothing = (
        Path(__file__).with_name("site_hub.py"),
        asyncio.subprocess.PIPE,
        asyncio.subprocess.DEVNULL,
    )
    # The log of Berlin tells that the link to Paris is lost; so does the chart.
    process = await asyncio.create_subprocess_exec(sys.executable, program, *arguments, stdout=pipe, stderr=nothing)

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()
    return process, url or sys.exit(f"{arguments[0]}: its hub has not started: run {program} {' '.join(arguments)}")


async def play(seconds: float) -> list[Step]:
    """Run the phases, and print each half second once its calls have ended."""
    async with AsyncExitStack() as stack:
        paris = Paris(stack)
        await paris.start()
        _, url = await started(stack, "berlin", ANYWHERE, paris.url)
        node = await stack.enter_async_context(tw.Node(url, name="shop"))
        print(f"a site answers {CAPACITY} calls in a second; {CALM} come when it is calm, and {BURST} in the burst")
        print("     s  phase           berlin    paris  refused    p50     four calls: █ Berlin  ▒ Paris  × refused")
        steps: list[Step] = []
        shown: Awaitable[None] = asyncio.sleep(0)
        begun = perf_counter()
        for phase, rate, change in (
            ("calm", CALM, None),
            ("burst", BURST, None),
            ("Paris killed", BURST, paris.kill),
            ("Paris returns", BURST, paris.start),
            ("calm again", CALM, None),
        ):
            changing = None if change is None else asyncio.ensure_future(change())
            left = round(seconds / STEP_S)
            while left > 0 and len(steps) < STEPS_MAX:
                # A hub that starts takes calls once Berlin has joined it again.
                left -= change != paris.start or bool(steps[-1].places["paris"])
                steps.append(Step(phase))
                await steps[-1].call(node.client("pricing"), rate, begun + STEP_S * (len(steps) - 1))
                # Rows wait for calls that were lost and are made again; new calls do not.
                shown = asyncio.ensure_future(steps[-1].show(STEP_S * (len(steps) - 1), shown))
            if changing is not None:
                await changing
        await shown
        return steps


def main() -> int:
    """Play it; 1 if calls ran at the wrong site."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each of five phases (2)")
    steps = asyncio.run(play(parser.parse_args().seconds))
    last = {step.phase: step.places for step in steps}
    total = sum((step.places for step in steps), Counter[str]())
    away = {phase: places["paris"] for phase, places in last.items()}
    if (
        not away["burst"]
        or not away["Paris returns"]
        or away["Paris killed"]
        # A machine that stands still for a moment sends late calls at once, and some spill over.
        or away["calm again"] > away["burst"] / 2
    ):
        print(f"WRONG: calls in Paris at the end of each phase: {away}", file=sys.stderr)
        return 1
    print(
        ", ".join(
            f"{total[place]:,} {text}" for place, text in zip(MARKS, ("in Berlin", "in Paris", "refused"), strict=True)
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
