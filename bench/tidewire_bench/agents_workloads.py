"""Tidewire's agents under the workloads of an agent broker.

python -m tidewire_bench.agents_workloads --contender coroutines --workload g1 --count 100000
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import tidewire as tw

from tidewire_bench.measure import (
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
    request_in_turn,
    request_many,
    run,
    settle,
)
from tidewire_bench.workloads import wait

_LIMIT_S = 50.0
_POOL_WORKERS = 4

Handler = Callable[[Tally], Callable[[int], Any]]
Order = tuple[str, int, int]


def ignore(payload: Any) -> None:
    """The handler of an agent that only sends."""


# One way


async def one_way_coroutine(options: Namespace) -> Figures:
    """Both agents on the event loop."""
    return await one_way(options, Tally.coroutine)


async def one_way_function(options: Namespace) -> Figures:
    """The sender on the event loop; the receiver is a plain function on the node's threads."""
    return await one_way(options, Tally.function)


async def one_way(options: Namespace, handler: Handler) -> Figures:
    arrived = Arrival()
    tally = Tally(options.count, arrived.set)
    async with tw.Node() as node:
        node.agent(handler(tally), id="receiver")
        send, start = node.agent(ignore, id="sender").send, 0.0
        for goal in goals(options.count):
            start = time.perf_counter()
            for word in range(goal):
                await send(word, "receiver")
            await arrived.wait()
        return tally.rate(start)


def one_way_threads(options: Namespace) -> Figures:
    """A thread tells, and waits only when it is told that the mailbox is full; the receiver is a
    plain function.
    """
    done, start = threading.Event(), 0.0
    tally = Tally(options.count, done.set)
    with tw.Node() as node:
        node.agent(tally.function(), id="receiver")
        sender = node.agent(ignore, id="sender")
        for goal in goals(options.count):
            done.clear()
            start = time.perf_counter()
            tell_each(sender, range(goal))
            wait(done)
    return tally.rate(start)


def tell_each(sender: tw.Agent, words: range) -> None:
    tell, send = sender.tell, sender.sync.send
    for word in words:
        try:
            tell(word, "receiver")
        except tw.MailboxFull:
            send(word, "receiver")


# Request and reply


async def request_coroutine(options: Namespace) -> Figures:
    """Both agents on the event loop."""

    async def answer(word: int) -> int:
        return word

    return await request(options, answer)


async def request_function(options: Namespace) -> Figures:
    """The caller on the event loop; the answer comes from the node's threads."""
    return await request(options, lambda word: word)


async def request(options: Namespace, answer: Callable[[int], Any]) -> Figures:
    async with tw.Node() as node:
        node.agent(answer, id="answers")
        caller = node.agent(ignore, id="caller")
        return await request_many(lambda word: caller.request(word, "answers"), options)


def request_handlers(options: Namespace) -> Figures:
    """Both agents are plain functions on the node's threads; the caller asks from inside its
    handler.
    """
    found: list[Figures] = []
    done = threading.Event()

    def call(_: Any) -> None:
        try:
            found.append(request_in_turn(lambda word: caller.sync.request(word, "answers"), options))
        finally:
            done.set()

    with tw.Node() as node:
        node.agent(lambda word: word, id="answers")
        caller = node.agent(call, id="caller")
        node.agent(ignore, id="starter").tell(None, "caller")
        wait(done)
    return found[0]


# Broadcast


async def broadcast_coroutine(options: Namespace) -> Figures:
    """Everybody on the event loop; the sender gives way after each broadcast."""
    return await broadcast(options, Tally.coroutine)


async def broadcast_function(options: Namespace) -> Figures:
    """The sender on the event loop; the receivers are plain functions."""
    return await broadcast(options, Tally.function)


async def broadcast(options: Namespace, handler: Handler) -> Figures:
    arrived, start = Arrival(), 0.0
    finish = after(options.actors, arrived.set)
    tallies = [Tally(options.count, finish) for _ in range(options.actors)]
    async with tw.Node() as node:
        for number, tally in enumerate(tallies):
            node.agent(handler(tally), id=f"receiver-{number}")
        sender = node.agent(ignore, id="sender")
        for goal in goals(options.count):
            start = time.perf_counter()
            for word in range(goal):
                accepted = sender.broadcast(word)
                assert accepted == options.actors, f"{accepted} of {options.actors} accepted a broadcast"
                await asyncio.sleep(0)
            await arrived.wait()
        return everybody(tallies, start)


# A burst of mixed priorities


async def burst_coroutine(options: Namespace) -> Figures:
    """Agents that are coroutines hand each message to a pool of threads, and await its result."""

    def handler(pool: tw.Pool, log: Burst) -> Callable[[Order], Any]:
        async def handle(order: Order) -> None:
            lane, sent_ns, word = order
            assert await pool.submit(word) == settle(word)
            log.handled(lane, sent_ns)

        return handle

    return await burst(options, handler)


async def burst_function(options: Namespace) -> Figures:
    """Agents that are plain functions block until the pool has the result."""

    def handler(pool: tw.Pool, log: Burst) -> Callable[[Order], Any]:
        def handle(order: Order) -> None:
            lane, sent_ns, word = order
            assert pool.sync.submit(word) == settle(word)
            log.handled(lane, sent_ns)

        return handle

    return await burst(options, handler)


async def burst(options: Namespace, handler: Callable[[tw.Pool, Burst], Callable[[Order], Any]]) -> Figures:
    arrived = Arrival()
    log = Burst(options.count, arrived.set)
    async with tw.Node() as node, tw.Pool(settle, workers=_POOL_WORKERS) as pool:
        for number in range(options.actors):
            node.agent(handler(pool, log), id=f"agent-{number}")
        await pool.submit(0)
        sender, start = node.agent(ignore, id="sender"), time.perf_counter()
        for word, lane in enumerate(lanes(options.count)):
            await sender.send((lane, now_ns(), word), f"agent-{word % options.actors}", priority=lane)
        await arrived.wait()
        return log.figures(start)


class Arrival:
    """An event of the running loop that any thread may set; waiting for it has a limit."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wakes who waits."""
        self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Waits for the next time it is set, but not for ever: a run that hangs should say so."""
        await asyncio.wait_for(self._event.wait(), _LIMIT_S)
        self._event.clear()


CONTENDERS: dict[str, dict[str, Workload]] = {
    "coroutines": {
        "g1": in_loop(one_way_coroutine),
        "g2": in_loop(request_coroutine),
        "g3": in_loop(request_coroutine),
        "g4": in_loop(broadcast_coroutine),
        "g5": in_loop(burst_coroutine),
    },
    "functions": {
        "g1": in_loop(one_way_function),
        "g2": in_loop(request_function),
        "g3": in_loop(request_function),
        "g4": in_loop(broadcast_function),
        "g5": in_loop(burst_function),
    },
    "threads": {"g1": one_way_threads},
    "handlers": {"g2": request_handlers},
}

if __name__ == "__main__":
    sys.exit(run(CONTENDERS))
