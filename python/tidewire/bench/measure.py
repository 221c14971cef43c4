"""How a Python workload says what it found: one line of JSON, as the Rust and Java programs print it.

This file uses nothing but the standard library, so that peers can use it without loading Tidewire.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import ceil

Figures = dict[str, float]
Workload = Callable[[argparse.Namespace], Figures]

now_ns = time.perf_counter_ns

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def rate(count: int, seconds: float) -> Figures:
    """``count`` things in ``seconds``."""
    return {"seconds": seconds, "rate": count / seconds}


def latency(samples_ns: Sequence[int]) -> Figures:
    """Percentiles of nanoseconds, in microseconds."""
    ordered = sorted(samples_ns)

    def at(share: float) -> float:
        return ordered[max(1, ceil(share * len(ordered))) - 1] / 1e3

    return {
        "samples": len(ordered),
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "mean_us": sum(ordered) / len(ordered) / 1e3,
        "max_us": at(1.0),
    }


def others(own: int, actors: int, count: int) -> list[int]:
    """``count`` indices of the other actors, round robin, beginning after one's own."""
    ring = [(own + step) % actors for step in range(1, actors)]
    return (ring * (count // len(ring) + 1))[:count]


async def ask_many(ask: Callable[[int], Awaitable[int]], options: argparse.Namespace) -> Figures:
    """``in_flight`` askers, each with one request under way; the times of the requests are taken only if there is one."""
    share = options.count // options.in_flight
    samples: list[int] = []

    async def asker() -> None:
        for word in range(share):
            assert await ask(word) == word

    async def timing_asker() -> None:
        for word in range(share):
            began = now_ns()
            assert await ask(word) == word
            samples.append(now_ns() - began)

    start = time.perf_counter()
    if options.in_flight == 1:
        await timing_asker()
    else:
        await asyncio.gather(*(asker() for _ in range(options.in_flight)))
    figures = rate(share * options.in_flight, time.perf_counter() - start)
    return {**figures, **latency(samples)} if samples else figures


def in_loop(workload: Callable[[argparse.Namespace], Awaitable[Figures]]) -> Workload:
    """Runs a coroutine workload in a loop of its own."""

    async def body(options: argparse.Namespace) -> Figures:
        return await workload(options)

    return lambda options: asyncio.run(body(options))


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


def run(contenders: Mapping[str, Mapping[str, Workload]], argv: Sequence[str] | None = None) -> int:
    """Runs one workload for one contender and prints its line."""
    parser = argparse.ArgumentParser(description="Runs one workload for one contender and prints one line of JSON.")
    parser.add_argument("--contender", required=True, choices=sorted(contenders))
    parser.add_argument("--workload", required=True)
    parser.add_argument("--count", type=int, default=100_000, help="how many of whatever the workload counts")
    parser.add_argument("--actors", type=int, default=50)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--mailbox", type=int, default=10_000)
    options = parser.parse_args(argv)
    workload = contenders[options.contender].get(options.workload)
    if workload is None:
        known = ", ".join(sorted(contenders[options.contender]))
        parser.error(f"--workload {options.workload}: {options.contender} runs {known}")
    params = {key: getattr(options, key) for key in ("count", "actors", "idle", "in_flight", "mailbox")}
    line = {
        "contender": options.contender,
        "allocator": "python",
        "workload": options.workload,
        "params": params,
        "figures": workload(options),
    }
    print(json.dumps(line))
    return 0
