"""What a program without Tidewire would write for the workloads of agents: no Tidewire is loaded here.

python agent_peers.py --contender asyncio --workload g1 --count 100000
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "tidewire" / "bench"))

from measure import (
    LANES,
    Burst,
    Figures,
    Workload,
    in_loop,
    lanes,
    now_ns,
    rate,
    request_in_turn,
    request_many,
    run,
    settle,
)
from seed_like import Broker, Message

POOL_WORKERS = 4
RANKS = {lane: -number for number, lane in enumerate(LANES)}

Order = tuple[str, int, int]


# asyncio alone: an agent is a task with a bounded queue


async def asyncio_one_way(options: Namespace) -> Figures:
    words: asyncio.Queue[int] = asyncio.Queue(options.mailbox)

    async def receive() -> float:
        for _ in range(options.count):
            await words.get()
        return time.perf_counter()

    receiver = asyncio.create_task(receive())
    await asyncio.sleep(0)
    start = time.perf_counter()
    for word in range(options.count):
        await words.put(word)
    return rate(options.count, await receiver - start)


async def asyncio_request(options: Namespace) -> Figures:
    """A request carries a future for its reply. It has no deadline, which ours has."""
    requests: asyncio.Queue[tuple[int, asyncio.Future[int]]] = asyncio.Queue(options.mailbox)
    loop = asyncio.get_running_loop()

    async def answer() -> None:
        while True:
            word, reply = await requests.get()
            reply.set_result(word)

    async def ask(word: int) -> int:
        reply: asyncio.Future[int] = loop.create_future()
        await requests.put((word, reply))
        return await reply

    answering = asyncio.create_task(answer())
    figures = await request_many(ask, options)
    answering.cancel()
    return figures


async def asyncio_broadcast(options: Namespace) -> Figures:
    queues: list[asyncio.Queue[int]] = [asyncio.Queue(options.mailbox) for _ in range(options.actors)]

    async def receive(words: asyncio.Queue[int]) -> float:
        for _ in range(options.count):
            await words.get()
        return time.perf_counter()

    receivers = [asyncio.create_task(receive(words)) for words in queues]
    start = time.perf_counter()
    for word in range(options.count):
        for words in queues:
            await words.put(word)
        await asyncio.sleep(0)
    return rate(options.count * options.actors, max(await asyncio.gather(*receivers)) - start)


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


# concurrent.futures: an agent is an executor with one thread; its queue has no bound and no priorities


def executor_one_way(options: Namespace) -> Figures:
    left, at = options.count, 0.0

    def handle(word: int) -> None:
        nonlocal left, at
        left -= 1
        if left == 0:
            at = time.perf_counter()

    start = time.perf_counter()
    with ThreadPoolExecutor(1) as agent:
        for word in range(options.count):
            agent.submit(handle, word)
    return rate(options.count, at - start)


def executor_request(options: Namespace) -> Figures:
    """One after another from a plain thread, as several at once from coroutines."""
    with ThreadPoolExecutor(1) as agent:
        if options.in_flight == 1:
            return request_in_turn(lambda word: agent.submit(same, word).result(), options)
        return asyncio.run(executor_requests(agent, options))


async def executor_requests(agent: ThreadPoolExecutor, options: Namespace) -> Figures:
    loop = asyncio.get_running_loop()
    return await request_many(lambda word: loop.run_in_executor(agent, same, word), options)


def executor_broadcast(options: Namespace) -> Figures:
    finished: list[float] = []
    agents = [ThreadPoolExecutor(1) for _ in range(options.actors)]
    handlers = [count_down(options.count, finished) for _ in agents]
    start = time.perf_counter()
    for word in range(options.count):
        for agent, handler in zip(agents, handlers, strict=True):
            agent.submit(handler, word)
    for agent in agents:
        agent.shutdown()
    assert len(finished) == options.actors
    return rate(options.count * options.actors, max(finished) - start)


def executor_burst(options: Namespace) -> Figures:
    done = threading.Event()
    log = Burst(options.count, done.set)
    agents = [ThreadPoolExecutor(1) for _ in range(options.actors)]
    with ThreadPoolExecutor(POOL_WORKERS) as pool:

        def handle(lane: str, sent_ns: int, word: int) -> None:
            assert pool.submit(settle, word).result() == settle(word)
            log.handled(lane, sent_ns)

        pool.submit(settle, 0).result()
        start = time.perf_counter()
        for word, lane in enumerate(lanes(options.count)):
            agents[word % options.actors].submit(handle, lane, now_ns(), word)
        done.wait()
    for agent in agents:
        agent.shutdown()
    return log.figures(start)


def same(word: int) -> int:
    return word


def count_down(count: int, finished: list[float]) -> Callable[[int], None]:
    """A handler that notes when it has seen all."""
    left = count

    def handle(word: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            finished.append(time.perf_counter())

    return handle


# the replica of an agent broker


async def replica_one_way(options: Namespace) -> Figures:
    return await replica(options, ["receiver"], 1)


async def replica_broadcast(options: Namespace) -> Figures:
    return await replica(options, [f"receiver-{number}" for number in range(options.actors)], options.actors)


async def replica(options: Namespace, names: list[str], copies: int) -> Figures:
    """Every word to every name."""
    broker, done, finished = Broker(), asyncio.Event(), []
    total = options.count * copies

    async def handle(message: Message) -> None:
        finished.append(message.number)
        if len(finished) == total:
            done.set()

    for name in names:
        broker.register(name, handle)
    start = time.perf_counter()
    for word in range(options.count):
        for name in names:
            await broker.send(name, word)
    await done.wait()
    seconds = time.perf_counter() - start
    await broker.stop()
    return rate(total, seconds)


async def replica_request(options: Namespace) -> Figures:
    broker = Broker()

    async def answer(message: Message) -> Any:
        return message.payload

    broker.register("answers", answer)
    figures = await request_many(lambda word: broker.request("answers", word), options)
    await broker.stop()
    return figures


async def replica_burst(options: Namespace) -> Figures:
    """As many tasks of the broker as there are agents; an agent may have several messages in its hands here."""
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


def of_asyncio(*workloads: Callable[[Namespace], Awaitable[Figures]]) -> dict[str, Workload]:
    """One way, requests in both forms, broadcast, burst."""
    one_way, request, broadcast, burst = (in_loop(workload) for workload in workloads)
    return {"g1": one_way, "g2": request, "g3": request, "g4": broadcast, "g5": burst}


CONTENDERS: dict[str, dict[str, Workload]] = {
    "asyncio": of_asyncio(asyncio_one_way, asyncio_request, asyncio_broadcast, asyncio_burst),
    "concurrent-futures": {
        "g1": executor_one_way,
        "g2": executor_request,
        "g3": executor_request,
        "g4": executor_broadcast,
        "g5": executor_burst,
    },
    "broker-replica": of_asyncio(replica_one_way, replica_request, replica_broadcast, replica_burst),
}

if __name__ == "__main__":
    sys.exit(run(CONTENDERS))
