"""A small replica of an agent broker as such brokers are often written. It is not anybody's
product.

Agents put messages into one priority queue; a processing loop polls it, sleeping 1 ms when it is
empty, and hands each message to a pool of worker tasks, which wait for work with a timeout of 0.1
s. A request is a message with a future in a table. These are the habits that a message pays for
here: a heap, a poll, a timer for each wait, a task switch for each hop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Handler = Callable[["Message"], Awaitable[Any]]


@dataclass(order=True)
class Message:
    """Message of the benchmark: ordered by priority, then by age."""

    priority: int
    number: int
    target: str = field(compare=False)
    payload: Any = field(compare=False)
    correlation: int | None = field(default=None, compare=False)


class Broker:
    """One queue in, one loop, a pool of workers."""

    def __init__(self, workers: int = 4, places: int = 10_000) -> None:
        self._incoming: asyncio.PriorityQueue[Message] = asyncio.PriorityQueue(places)
        self._work: asyncio.Queue[Message] = asyncio.Queue(places)
        self._agents: dict[str, Handler] = {}
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._running = True
        self._tasks = [asyncio.create_task(self._process())]
        self._tasks += [asyncio.create_task(self._worker()) for _ in range(workers)]

    def register(self, name: str, handler: Handler) -> None:
        """Makes an agent known."""
        self._agents[name] = handler

    async def send(self, target: str, payload: Any, correlation: int | None = None, priority: int = 1) -> None:
        """Queues a message; waits while the queue is full. A lower priority goes first."""
        await self._incoming.put(Message(priority, next(self._numbers), target, payload, correlation))

    async def request(self, target: str, payload: Any, timeout: float = 30.0) -> Any:
        """Sends a message and waits for what its handler returns."""
        correlation = next(self._numbers)
        future = self._pending[correlation] = asyncio.get_running_loop().create_future()
        await self.send(target, payload, correlation)
        return await asyncio.wait_for(future, timeout)

    async def stop(self) -> None:
        """Ends the loops."""
        self._running = False
        await asyncio.gather(*self._tasks)

    async def _process(self) -> None:
        while self._running:
            if self._incoming.empty():
                await asyncio.sleep(0.001)
                continue
            await self._work.put(self._incoming.get_nowait())

    async def _worker(self) -> None:
        while self._running:
            try:
                message = await asyncio.wait_for(self._work.get(), 0.1)
            except asyncio.TimeoutError:
                continue
            answer = await self._agents[message.target](message)
            if message.correlation is not None:
                self._pending.pop(message.correlation).set_result(answer)
