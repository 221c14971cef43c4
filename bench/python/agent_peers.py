"""Peers of the workloads of agents, as a program without Tidewire would write them: no Tidewire is
loaded here.

python agent_peers.py --contender asyncio --workload g1 --count 100000
"""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tidewire_bench"))

from measure import (
    LANES,
    Burst,
    Figures,
    Tally,
    Workload,
    after,
    everybody,
    goals,
    in_loop,
    lanes,
    now_ns,
    request_many,
    run,
    settle,
)

TIMEOUT_S = 30.0
POOL_WORKERS = 4
RANKS = {lane: -number for number, lane in enumerate(LANES)}

Order = tuple[str, int, int]
Requests = asyncio.Queue[tuple[int, asyncio.Future[int]]]


# asyncio alone: an agent is a task with a bounded queue


async def asyncio_one_way(options: Namespace) -> Figures:
    words: asyncio.Queue[int] = asyncio.Queue(options.mailbox)
    arrived, start = asyncio.Event(), 0.0
    tally = Tally(options.count, arrived.set)
    receiver = asyncio.create_task(receive(words, tally.function()))
    for goal in goals(options.count):
        arrived.clear()
        start = time.perf_counter()
        for word in range(goal):
            await words.put(word)
        await arrived.wait()
    receiver.cancel()
    return tally.rate(start)


async def receive(words: asyncio.Queue[int], handle: Callable[[int], None]) -> None:
    while True:
        handle(await words.get())


async def asyncio_request(options: Namespace) -> Figures:
    """A request carries a future for its reply. It has no deadline, which ours has."""
    async with answering(options) as (requests, loop):

        async def ask(word: int) -> int:
            reply: asyncio.Future[int] = loop.create_future()
            await requests.put((word, reply))
            return await reply

        return await request_many(ask, options)


async def asyncio_request_deadline(options: Namespace) -> Figures:
    """The same with a deadline for each request, by the cheapest means: a timer that is
    cancelled.
    """
    async with answering(options) as (requests, loop):

        async def ask(word: int) -> int:
            reply: asyncio.Future[int] = loop.create_future()
            timer = loop.call_later(TIMEOUT_S, reply.set_exception, TimeoutError())
            try:
                await requests.put((word, reply))
                return await reply
            finally:
                timer.cancel()

        return await request_many(ask, options)


@asynccontextmanager
async def answering(options: Namespace) -> AsyncIterator[tuple[Requests, asyncio.AbstractEventLoop]]:
    """An agent that answers what is put into its queue."""
    requests: Requests = asyncio.Queue(options.mailbox)

    async def answer() -> None:
        while True:
            word, reply = await requests.get()
            if not reply.done():
                reply.set_result(same(word))

    agent = asyncio.create_task(answer())
    yield requests, asyncio.get_running_loop()
    agent.cancel()


async def asyncio_broadcast(options: Namespace) -> Figures:
    arrived, start = asyncio.Event(), 0.0
    finish = after(options.actors, arrived.set)
    tallies = [Tally(options.count, finish) for _ in range(options.actors)]
    queues: list[asyncio.Queue[int]] = [asyncio.Queue(options.mailbox) for _ in tallies]
    pairs = zip(queues, tallies, strict=True)
    receivers = [asyncio.create_task(receive(words, tally.function())) for words, tally in pairs]
    for goal in goals(options.count):
        arrived.clear()
        start = time.perf_counter()
        for word in range(goal):
            for words in queues:
                await words.put(word)
            await asyncio.sleep(0)
        await arrived.wait()
    for receiver in receivers:
        receiver.cancel()
    return everybody(tallies, start)


async def asyncio_burst(options: Namespace) -> Figures:
    """A priority queue for each agent, and a pool of threads behind all of them."""
    done, loop = asyncio.Event(), asyncio.get_running_loop()
    log = Burst(options.count, done.set)
    queues: list[asyncio.PriorityQueue[tuple[int, int, Order]]]
    queues = [asyncio.PriorityQueue(options.mailbox) for _ in range(options.actors)]

    async def receive(orders: asyncio.PriorityQueue[tuple[int, int, Order]], pool: ThreadPoolExecutor) -> None:
        while True:
            _, _, (lane, sent_ns, word) = await orders.get()
            assert await loop.run_in_executor(pool, settle, word) == settle(word)
            log.handled(lane, sent_ns)

    with ThreadPoolExecutor(POOL_WORKERS) as pool:
        receivers = [asyncio.create_task(receive(orders, pool)) for orders in queues]
        await loop.run_in_executor(pool, settle, 0)
        start = time.perf_counter()
        for word, lane in enumerate(lanes(options.count)):
            await queues[word % options.actors].put((RANKS[lane], word, (lane, now_ns(), word)))
        await done.wait()
        for receiver in receivers:
            receiver.cancel()
    return log.figures(start)


def same(word: int) -> int:
    return word


def of_asyncio(*workloads: Callable[[Namespace], Awaitable[Figures]]) -> dict[str, Workload]:
    """One way, requests in both forms, broadcast, burst."""
    one_way, request, broadcast, burst = (in_loop(workload) for workload in workloads)
    return {"g1": one_way, "g2": request, "g3": request, "g4": broadcast, "g5": burst}


CONTENDERS: dict[str, dict[str, Workload]] = {
    "asyncio": of_asyncio(asyncio_one_way, asyncio_request, asyncio_broadcast, asyncio_burst),
    "asyncio-deadline": {"g2": in_loop(asyncio_request_deadline), "g3": in_loop(asyncio_request_deadline)},
}

if __name__ == "__main__":
    sys.exit(run(CONTENDERS))
