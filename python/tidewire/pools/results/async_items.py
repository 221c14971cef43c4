"""Reader of the items of an asynchronous map. Only programs with asyncio load this module."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewire.pools.results.map import Map


class Feeder:
    """Task that reads an asynchronous iterable. It submits the items read so far whenever it would
    wait for the next one.
    """

    def __init__(self, flow: Map, items: AsyncIterable[Any]) -> None:
        self._flow = flow
        self._loop = asyncio.get_running_loop()
        self._part: list[Any] = []
        self._ready: asyncio.Future[None] | None = None
        self._capacity_freed: asyncio.Future[None] | None = None
        self._task = self._loop.create_task(self._read(items))

    # Consumer of the results

    async def next_result(self) -> None:
        """Wait until the next result is available, or the map has ended."""
        ready = self._ready = self._loop.create_future()

        def wake() -> None:
            self._loop.call_soon_threadsafe(_settle, ready)

        if not self._flow.over and self._flow.wait(wake):
            await ready

    def resume(self) -> None:
        """Resume reading if enough results were consumed."""
        if self._flow.capacity:
            _settle(self._capacity_freed)

    async def close(self) -> None:
        """Stop reading, and drop items that were not submitted."""
        self._flow.exhausted = True
        self._task.cancel()
        await asyncio.wait([self._task])

    # The task

    async def _read(self, items: AsyncIterable[Any]) -> None:
        error = None
        try:
            async for item in items:
                self._part.append(item)
                if len(self._part) == 1:
                    # The call runs when this task waits for the next item.
                    self._loop.call_soon(self._submit)
                if len(self._part) >= self._flow.free:
                    self._submit()
                    while not self._flow.capacity and not self._flow.exhausted:
                        self._capacity_freed = self._loop.create_future()
                        await self._capacity_freed
        # The consumer of the results receives the error after the results before it.
        except asyncio.CancelledError as cancelled:
            self._submit(over=True, error=cancelled)
            raise
        except Exception as raised:  # noqa: BLE001
            error = raised
        self._submit(over=True, error=error)

    def _submit(self, over: bool = False, error: BaseException | None = None) -> None:
        if self._flow.exhausted or not (self._part or over):
            return
        part, self._part = self._part, []
        try:
            self._flow.add(part, over, error)
        except Exception as refused:  # noqa: BLE001
            self._flow.exhausted, self._flow.error = True, refused
        if self._flow.exhausted:
            _settle(self._ready)
            self._task.cancel()


def _settle(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
