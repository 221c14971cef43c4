"""The replica of an agent broker under the workloads of agents; ``agent_peers.py`` runs it."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tidewire_bench"))

from measure import LANES, Burst, Figures, Tally, after, everybody, goals, lanes, now_ns, request_many, settle
from seed_like import Broker, Message

POOL_WORKERS = 4
RANKS = {lane: -number for number, lane in enumerate(LANES)}


async def replica_one_way(options: Namespace) -> Figures:
    return await replica(options, 1)


async def replica_broadcast(options: Namespace) -> Figures:
    return await replica(options, options.actors)


async def replica(options: Namespace, receivers: int) -> Figures:
    """Every word to every receiver."""
    broker, arrived, start = Broker(), asyncio.Event(), 0.0
    finish = after(receivers, arrived.set)
    tallies = {f"receiver-{number}": Tally(options.count, finish) for number in range(receivers)}
    for name, tally in tallies.items():
        broker.register(name, unpacked(tally.function()))
    for goal in goals(options.count):
        arrived.clear()
        start = time.perf_counter()
        for word in range(goal):
            for name in tallies:
                await broker.send(name, word)
        await arrived.wait()
    await broker.stop()
    return everybody(list(tallies.values()), start)


def unpacked(handle: Callable[[int], None]) -> Callable[[Message], Awaitable[None]]:
    """A handler of the broker's messages."""

    async def receive(message: Message) -> None:
        handle(message.payload)

    return receive


async def replica_request(options: Namespace) -> Figures:
    broker = Broker()

    async def answer(message: Message) -> Any:
        return message.payload

    broker.register("answers", answer)
    figures = await request_many(lambda word: broker.request("answers", word), options)
    await broker.stop()
    return figures


async def replica_burst(options: Namespace) -> Figures:
    """As many tasks of the broker as there are agents; an agent may have several messages in its
    hands here.
    """
    broker, done, loop = Broker(options.actors), asyncio.Event(), asyncio.get_running_loop()
    log = Burst(options.count, done.set)
    with ThreadPoolExecutor(POOL_WORKERS) as pool:

        async def handle(message: Message) -> None:
            lane, sent_ns, word = message.payload
            assert await loop.run_in_executor(pool, settle, word) == settle(word)
            log.handled(lane, sent_ns)

        for number in range(options.actors):
            broker.register(f"agent-{number}", handle)
        await loop.run_in_executor(pool, settle, 0)
        start = time.perf_counter()
        for word, lane in enumerate(lanes(options.count)):
            await broker.send(f"agent-{word % options.actors}", (lane, now_ns(), word), priority=RANKS[lane])
        await done.wait()
        await broker.stop()
    return log.figures(start)
