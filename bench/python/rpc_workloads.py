"""The caller's side of the workloads: payloads, requests one after another and all at once,
streams, and a paced load.

Nothing here knows a contender: it gets a link that can echo and stream. Payloads come from a seed,
the same for everybody.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

BENCH = Path(__file__).resolve().parents[1] / "tidewire_bench"
sys.path.append(str(BENCH))

from measure import Figures, latency, now_ns
from rpc_usage import Usage

SIZE_BYTES = {"shape": 256, "federation": 256, "small": 256, "medium": 20 * 1024, "large": 2 * 1024 * 1024}
ARRAYS_PERCENT = 14
"""With this share of arrays among status updates, the mixed sizes are about 1 KB on average."""
ASK_TALLY = b"?"
"""A payload of one byte asks how much of a stream has come."""
BESIDE_INTERVAL_NS = 2_000_000
TALLY_TIMEOUT_S = 50.0


class Link(Protocol):
    """A caller's connection to the echo service."""

    async def echo(self, data: bytes) -> bytes:
        """Sends a payload and waits for it to come back."""

    async def stream(self, messages: Sequence[bytes]) -> None:
        """Sends messages one way, as fast as the contender takes them."""


async def requests(link: Link, options: Namespace, usage: Usage) -> Figures:
    """``count`` requests, one after another or all at once; their replies are compared when the
    clock has stopped.
    """
    size, order = options.workload.split("-")
    payloads = payloads_of(size, options.count)
    call_all = {"seq": in_turn, "conc": at_once}[order]
    samples: list[int] = []
    usage.start()
    start = time.perf_counter()
    replies = await call_all(link, payloads, samples)
    seconds = time.perf_counter() - start
    usage.stop()
    assert replies == payloads, f"{options.workload}: a reply differs from its request"
    return {**figures(len(payloads), sum(map(len, payloads)), seconds), **percentiles(samples)}


async def in_turn(link: Link, payloads: Sequence[bytes], samples: list[int]) -> list[bytes]:
    """One request after another."""
    return [await timed(link, payload, samples, now_ns()) for payload in payloads]


async def at_once(link: Link, payloads: Sequence[bytes], samples: list[int]) -> list[bytes]:
    """All requests at once: each one's time counts from its own start."""
    return await asyncio.gather(*(timed(link, payload, samples) for payload in payloads))


async def timed(link: Link, payload: bytes, samples: list[int], from_ns: int | None = None) -> bytes:
    """One request, timed from ``from_ns`` if there is one, and checked as far as costs next to
    nothing.
    """
    began = now_ns() if from_ns is None else from_ns
    reply = await link.echo(payload)
    samples.append(now_ns() - began)
    assert len(reply) == len(payload), f"{len(reply)} bytes came back for {len(payload)}"
    assert reply[0] == payload[0] and reply[-1] == payload[-1], "other bytes came back"
    return reply


async def beside(link: Link, options: Namespace, usage: Usage) -> Figures:
    """A small request every 2 ms while 2 MiB travel to and fro all the time on the same link."""
    [large] = payloads_of("large", 1)
    transfers, enough = 0, False

    async def transfer() -> None:
        nonlocal transfers
        while not enough:
            await timed(link, large, [])
            transfers += 1

    usage.start()
    start = time.perf_counter()
    moving = asyncio.create_task(transfer())
    samples = await paced(link, options.count, BESIDE_INTERVAL_NS)
    seconds = time.perf_counter() - start
    usage.stop()
    enough = True
    await moving
    found = figures(options.count, SIZE_BYTES["small"] * options.count, seconds)
    return {**found, **percentiles(samples), "transfers": transfers}


async def open_loop(link: Link, options: Namespace, usage: Usage) -> Figures:
    """``rate`` small requests a second, whatever becomes of them: each one's time counts from when
    it was due.
    """
    usage.start()
    start = time.perf_counter()
    samples = await paced(link, options.count, round(1e9 / options.rate))
    seconds = time.perf_counter() - start
    usage.stop()
    done = figures(options.count, SIZE_BYTES["small"] * options.count, seconds)
    return {**done, **percentiles(samples), "offered_rate": options.rate}


async def paced(link: Link, count: int, interval_ns: int) -> list[int]:
    """Starts requests when they are due, without waiting for the ones before."""
    payloads = payloads_of("small", count)
    samples: list[int] = []
    tasks: list[asyncio.Task[bytes]] = []
    start_ns = now_ns()
    async with ticks(start_ns, interval_ns) as due:
        while len(tasks) < count:
            for at in range(len(tasks), min(count, len(tasks) + await due())):
                call = timed(link, payloads[at], samples, start_ns + (at + 1) * interval_ns)
                tasks.append(asyncio.create_task(call))
        await asyncio.gather(*tasks)
    return samples


async def stream(link: Link, options: Namespace, usage: Usage) -> Figures:
    """``count`` small messages one way, from the first that is sent to the last that the service
    has received.
    """
    messages = payloads_of("small", options.count)
    before, _ = await tally(link)
    usage.start()
    start_ns = now_ns()
    await link.stream(messages)
    at_ns = await received(link, before + len(messages))
    usage.stop()
    return figures(len(messages), sum(map(len, messages)), (at_ns - start_ns) / 1e9)


async def received(link: Link, count: int) -> int:
    """When the service had ``count`` messages, by the clock that all processes of a machine
    share.
    """
    give_up = time.monotonic() + TALLY_TIMEOUT_S
    while True:
        have, at_ns = await tally(link)
        if have >= count:
            return at_ns
        if time.monotonic() > give_up:
            raise TimeoutError(f"{have} of {count} messages arrived in {TALLY_TIMEOUT_S:.0f} s")
        await asyncio.sleep(0.005)


async def tally(link: Link) -> tuple[int, int]:
    """How many messages the service has received, and when the last."""
    have, at_ns = json.loads(await link.echo(ASK_TALLY))
    return have, at_ns


@asynccontextmanager
async def ticks(start_ns: int, interval_ns: int) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """Waits for ticks of a clock, and says how many have passed: asyncio's own timers are only good
    to a millisecond.
    """
    loop, timer = asyncio.get_running_loop(), timer_fd(start_ns, interval_ns)
    ready = asyncio.Event()
    loop.add_reader(timer, ready.set)

    async def due() -> int:
        while True:
            await ready.wait()
            ready.clear()
            try:
                return int.from_bytes(os.read(timer, 8), sys.byteorder)
            except BlockingIOError:
                continue

    try:
        yield due
    finally:
        loop.remove_reader(timer)
        os.close(timer)


def timer_fd(start_ns: int, interval_ns: int) -> int:
    """A timer of the kernel that ticks from ``start_ns`` on, one interval later for the first
    time.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    first_ns = start_ns + interval_ns
    when = (ctypes.c_long * 4)(*divmod(interval_ns, 10**9), *divmod(first_ns, 10**9))
    if timer < 0 or libc.timerfd_settime(timer, 1, when, None) != 0:
        raise OSError(ctypes.get_errno(), "timerfd")
    return timer


def payloads_of(size: str, count: int) -> list[bytes]:
    """Bytes by chance, so that nobody gains from compressing them; no two payloads are the same."""
    content = random.Random(1)
    sizes = mixed_sizes(count) if size == "mixed" else [SIZE_BYTES[size]] * count
    return [content.randbytes(each) for each in sizes]


def mixed_sizes(count: int) -> list[int]:
    """A dashboard's: status updates of 50 to 500 bytes, and arrays of 1 to 10 KB among them."""
    numbers = chances(1)
    return [
        1_000 + next(numbers) % 9_001 if next(numbers) % 100 < ARRAYS_PERCENT else 50 + next(numbers) % 451
        for _ in range(count)
    ]


def chances(seed: int) -> Iterator[int]:
    """Numbers by chance, which the Rust program draws in the same way."""
    state = seed
    while True:
        state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        yield state >> 33


def figures(count: int, total_bytes: int, seconds: float) -> Figures:
    """How many in ``seconds``, and how many bytes of payload one way."""
    return {"count": count, "seconds": seconds, "rate": count / seconds, "mb_s": total_bytes / seconds / 1e6}


def percentiles(samples_ns: Sequence[int]) -> Figures:
    """In milliseconds."""
    found = latency(samples_ns)
    return {name.replace("_us", "_ms"): value / 1e3 for name, value in found.items() if name != "samples"}


WORKLOADS = {
    **{f"{size}-{order}": requests for size in (*SIZE_BYTES, "mixed") for order in ("seq", "conc")},
    "beside": beside,
    "stream": stream,
    "open": open_loop,
}
