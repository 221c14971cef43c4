"""Peers of the workloads of the engine, as Python programmers write them today: no Tidewire is
loaded here.

python peers.py --contender asyncio-queue --workload p1 --count 1000000
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tidewire_bench"))

from measure import Figures, Workload, ask_many, in_loop, latency, now_ns, others, rate, run

Put = Callable[[Any], None]
Get = Callable[[], Any]


# asyncio.Queue between coroutines of one loop


async def queue_storm(options: Namespace) -> Figures:
    words: asyncio.Queue[int] = asyncio.Queue(options.mailbox)

    async def consume() -> int:
        total = 0
        for _ in range(options.count):
            total += await words.get()
        return total

    idle = [asyncio.create_task(asyncio.Queue(options.mailbox).get()) for _ in range(options.idle)]
    consumer = asyncio.create_task(consume())
    await asyncio.sleep(0)
    start = time.perf_counter()
    for word in range(options.count):
        await words.put(word)
    await consumer
    seconds = time.perf_counter() - start
    for task in idle:
        task.cancel()
    return rate(options.count, seconds)


async def queue_exchange(options: Namespace) -> Figures:
    actors, count = options.actors, options.count
    queues: list[asyncio.Queue[int]] = [asyncio.Queue(max(options.mailbox, count)) for _ in range(actors)]

    async def actor(own: int) -> int:
        total = 0
        for word, other in enumerate(others(own, actors, count)):
            await queues[other].put(word)
        for _ in range(count):
            total += await queues[own].get()
        return total

    start = time.perf_counter()
    await asyncio.gather(*(actor(own) for own in range(actors)))
    return rate(actors * count, time.perf_counter() - start)


async def queue_ask(options: Namespace) -> Figures:
    requests: asyncio.Queue[tuple[int, asyncio.Future[int]]] = asyncio.Queue(options.mailbox)
    loop = asyncio.get_running_loop()

    async def answer() -> None:
        while True:
            word, future = await requests.get()
            future.set_result(word)

    async def ask(word: int) -> int:
        future: asyncio.Future[int] = loop.create_future()
        await requests.put((word, future))
        return await future

    answering = asyncio.create_task(answer())
    figures = await ask_many(ask, options)
    answering.cancel()
    return figures


async def queue_fan_out(options: Namespace) -> Figures:
    queues: list[asyncio.Queue[int]] = [asyncio.Queue(options.mailbox) for _ in range(options.actors)]

    async def consume(words: asyncio.Queue[int]) -> int:
        total = 0
        for _ in range(options.count):
            total += await words.get()
        return total

    consumers = [asyncio.create_task(consume(words)) for words in queues]
    start = time.perf_counter()
    for word in range(options.count):
        for words in queues:
            await words.put(word)
    await asyncio.gather(*consumers)
    return rate(options.count * options.actors, time.perf_counter() - start)


# queues between threads


def thread_storm(put: Put, get: Get) -> Workload:
    def storm(options: Namespace) -> Figures:
        def consume() -> None:
            total = 0
            for _ in range(options.count):
                total += get()

        consumer = threading.Thread(target=consume)
        consumer.start()
        start = time.perf_counter()
        for word in range(options.count):
            put(word)
        consumer.join()
        return rate(options.count, time.perf_counter() - start)

    return storm


def thread_wake_ups(put: Put, get: Get) -> Workload:
    def wake_ups(options: Namespace) -> Figures:
        samples: list[int] = []

        def consume() -> None:
            for _ in range(options.count):
                sent = get()
                samples.append(now_ns() - sent)

        consumer = threading.Thread(target=consume)
        consumer.start()
        for _ in range(options.count):
            time.sleep(0.001)
            put(now_ns())
        consumer.join()
        return latency(samples)

    return wake_ups


def bare_wake_ups(options: Namespace) -> Figures:
    """The least that two Python threads need: a lock that one releases and the other waits for."""
    bell, samples = threading.Lock(), []
    bell.acquire()
    sent = 0

    def sleep_until_woken() -> None:
        for _ in range(options.count):
            bell.acquire()
            samples.append(now_ns() - sent)

    sleeper = threading.Thread(target=sleep_until_woken)
    sleeper.start()
    for _ in range(options.count):
        time.sleep(0.001)
        while not bell.locked():
            time.sleep(0.0001)
        sent = now_ns()
        bell.release()
    sleeper.join()
    return latency(samples)


SIMPLE: queue.SimpleQueue[int] = queue.SimpleQueue()
BOUNDED: queue.Queue[int] = queue.Queue(10_000)

CONTENDERS: dict[str, dict[str, Workload]] = {
    "asyncio-queue": {
        "p1": in_loop(queue_storm),
        "p2": in_loop(queue_exchange),
        "p4": in_loop(queue_ask),
        "p8": in_loop(queue_fan_out),
    },
    "simple-queue": {"p1": thread_storm(SIMPLE.put, SIMPLE.get), "p3": thread_wake_ups(SIMPLE.put, SIMPLE.get)},
    "thread-queue": {"p1": thread_storm(BOUNDED.put, BOUNDED.get), "p3": thread_wake_ups(BOUNDED.put, BOUNDED.get)},
    "bare-lock": {"p3": bare_wake_ups},
}

if __name__ == "__main__":
    sys.exit(run(CONTENDERS))
