"""Reports of a Python workload: one line of JSON, in the form of the Rust and Java programs.

This file uses nothing but the standard library, so that peers can use it without loading Tidewire.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import ceil
from statistics import median

Figures = dict[str, float]
Workload = Callable[[argparse.Namespace], Figures]

now_ns = time.perf_counter_ns

LANES = ("low", "normal", "high", "urgent")
WARM_UPS, WARM_UP_STEPS = 50, 60_000
PARAMS = ("count", "actors", "idle", "in_flight", "mailbox", "workers", "task_steps")

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
    """``in_flight`` askers, each with one request under way; the times of the requests are taken
    only if there is one.
    """
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


class Tally:
    """A handler that adds words, so that none is lost unseen. The plain function and the coroutine
    do the same.

    It expects the words below a tenth of ``count``, to warm up, then those below ``count``, and
    calls ``done`` after both.
    """

    def __init__(self, count: int, done: Callable[[], object]) -> None:
        self.at = 0.0
        self._totals: list[int] = []
        self._goals = goals(count)
        self._done = done

    def function(self) -> Callable[[int], None]:
        """As a plain function."""
        left, total = self._goals[0], 0

        def add(word: int) -> None:
            nonlocal left, total
            total += word
            left -= 1
            if left == 0:
                left, total = self._reached(total), 0

        return add

    def coroutine(self) -> Callable[[int], Awaitable[None]]:
        """As a coroutine function."""
        left, total = self._goals[0], 0

        async def add(word: int) -> None:
            nonlocal left, total
            total += word
            left -= 1
            if left == 0:
                left, total = self._reached(total), 0

        return add

    def rate(self, start: float) -> Figures:
        """The rate from ``start`` to the last word, if every word came once."""
        wanted = [sum(range(goal)) for goal in self._goals]
        assert self._totals == wanted, f"the words add up to {self._totals}, not to {wanted}"
        return rate(self._goals[-1], self.at - start)

    def _reached(self, total: int) -> int:
        self.at = time.perf_counter()
        self._totals.append(total)
        self._done()
        return self._goals[-1]


def goals(count: int) -> tuple[int, int]:
    """How many words go before, untimed, and how many are timed."""
    return max(1, count // 10), count


def everybody(tallies: Sequence[Tally], start: float) -> Figures:
    """The rate of all words to all receivers, to the last."""
    figures = [one.rate(start) for one in tallies]
    slowest = max(figures, key=lambda one: one["seconds"])
    return {**slowest, "rate": slowest["rate"] * len(tallies)}


def after(times: int, done: Callable[[], object]) -> Callable[[], None]:
    """Function that calls ``done`` on every call number that is a multiple of ``times``, from any
    thread.
    """
    numbers = itertools.count(1)

    def call() -> None:
        if next(numbers) % times == 0:
            done()

    return call


async def request_many(ask: Callable[[int], Awaitable[int]], options: argparse.Namespace) -> Figures:
    """``in_flight`` askers, each with one request under way. Every request is timed; a tenth of
    them goes before, untimed.
    """
    samples: list[int] = []

    async def asker(times: int, samples: list[int]) -> None:
        for word in range(times):
            began = now_ns()
            assert await ask(word) == word
            samples.append(now_ns() - began)

    async def askers(count: int, samples: list[int]) -> None:
        await asyncio.gather(*(asker(count // options.in_flight, samples) for _ in range(options.in_flight)))

    await askers(max(options.in_flight, options.count // 10), [])
    start = time.perf_counter()
    await askers(options.count, samples)
    return requests(samples, time.perf_counter() - start)


def request_in_turn(ask: Callable[[int], int], options: argparse.Namespace) -> Figures:
    """The same for a caller that blocks: one request after another."""
    samples: list[int] = []
    for word in range(options.count // 10):
        assert ask(word) == word
    start = time.perf_counter()
    for word in range(options.count):
        began = now_ns()
        assert ask(word) == word
        samples.append(now_ns() - began)
    return requests(samples, time.perf_counter() - start)


def requests(samples_ns: Sequence[int], seconds: float) -> Figures:
    """How many requests in ``seconds``, and how long each of them took."""
    figures = rate(len(samples_ns), seconds)
    return {**figures, "requests_rate": figures["rate"], **latency(samples_ns)}


def lanes(count: int) -> list[str]:
    """Priorities by chance, the same for everybody."""
    return random.Random(1).choices(LANES, k=count)


class Burst:
    """Outcome of a burst of messages: the time of the last one, and the waits of each priority."""

    def __init__(self, count: int, done: Callable[[], object]) -> None:
        self.at = 0.0
        self._waits_ns: dict[str, list[int]] = {lane: [] for lane in LANES}
        self._count = count
        self._done = done
        # The one counter that threads may share: taking its next number is one step of the
        # interpreter.
        self._numbers = itertools.count(1)

    def handled(self, lane: str, sent_ns: int) -> None:
        """A message has been handled, to the end."""
        self._waits_ns[lane].append(now_ns() - sent_ns)
        if next(self._numbers) == self._count:
            self.at = time.perf_counter()
            self._done()

    def figures(self, start: float) -> Figures:
        """The rate from ``start`` to the last message, and the middle of the waits."""
        waits = {f"{lane}_p50_us": median(self._waits_ns[lane]) / 1e3 for lane in LANES if self._waits_ns[lane]}
        return {**rate(self._count, self.at - start), **waits}


def settle(word: int) -> int:
    """Work of a worker on a message of a burst: next to nothing."""
    return word * 2 % 97


def pooled(run_all: Callable[[list[int]], Iterable[int]], options: argparse.Namespace) -> Figures:
    """``count`` tasks through a pool, from the first that is handed over to the last result.

    ``run_all`` takes the tasks and gives the worker of each. The clock starts when every worker has
    worked once.
    """
    warm_up(run_all, options.workers)
    tasks = [options.task_steps] * options.count
    start = time.perf_counter()
    workers = list(run_all(tasks))
    seconds = time.perf_counter() - start
    assert len(workers) == options.count, f"{len(workers)} results of {options.count}"
    return {**rate(options.count, seconds), "largest_share": largest_share(workers)}


def warm_up(run_all: Callable[[list[int]], Iterable[int]], workers: int) -> None:
    """Runs tasks of some length until every worker has had one."""
    seen: set[int] = set()
    for _ in range(WARM_UPS):
        seen.update(run_all([WARM_UP_STEPS] * 4 * workers))
        if len(seen) >= workers:
            return
    raise TimeoutError(f"{len(seen)} of {workers} workers took a task in {WARM_UPS} rounds")


def largest_share(workers: Sequence[int]) -> float:
    """How much of the work the busiest worker did."""
    return max(Counter(workers).values()) / len(workers)


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
    parser.add_argument("--workers", type=int, default=2, help="workers of a pool")
    parser.add_argument("--task-steps", type=int, default=0, help="how much one task of a pool computes")
    options = parser.parse_args(argv)
    workload = contenders[options.contender].get(options.workload)
    if workload is None:
        known = ", ".join(sorted(contenders[options.contender]))
        parser.error(f"--workload {options.workload}: {options.contender} runs {known}")
    params = {key: getattr(options, key) for key in PARAMS}
    line = {
        "contender": options.contender,
        "allocator": "python",
        "workload": options.workload,
        "params": params,
        "figures": workload(options),
    }
    print(json.dumps(line))
    return 0
