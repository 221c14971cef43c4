"""Services that several stories call."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tidewire as tw

PATIENCE = 30.0


@dataclass
class Quote:
    symbol: str
    price: float


class Pricing(tw.Service):
    """Prices of things."""

    def __init__(self) -> None:
        self.orders: asyncio.Queue[tuple[Quote, str | None]] = asyncio.Queue(1_000)

    @tw.method
    async def quote(self, symbol: str, qty: int = 1) -> Quote:
        """Quote a price."""
        return Quote(symbol, 2.0 * qty)

    @tw.method(name="where")
    def thread(self) -> str:
        return threading.current_thread().name

    @tw.method
    async def fail(self, kind: str) -> None:
        raise {"key": KeyError, "exit": SystemExit, "stop": StopIteration, "gone": asyncio.CancelledError}[kind](kind)

    @tw.method
    def fail_plainly(self, kind: type[BaseException] = LookupError) -> None:
        raise kind("plainly")

    @tw.on("orders.*")
    async def on_order(self, order: Quote, call: tw.CallContext) -> None:
        await self.orders.put((order, call.subject))


class Hanging(tw.Service):
    """Handlers that the test holds, and looks at."""

    def __init__(self) -> None:
        self.inside = asyncio.Event()
        self.left: asyncio.Queue[str] = asyncio.Queue(1_000)
        self.thread_inside = threading.Event()
        self.thread_open = threading.Event()
        self.seen_cancelled = threading.Event()

    @tw.method
    async def hang(self) -> str:
        self.inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.left.put_nowait("cancelled")
            raise
        finally:
            self.left.put_nowait("finally")
        return "never"

    @tw.method
    def block(self, call: tw.CallContext) -> str:
        self.thread_inside.set()
        assert self.thread_open.wait(PATIENCE)
        if call.cancelled:
            self.seen_cancelled.set()
        return "blocked"

    @tw.method
    async def ping(self) -> str:
        return "pong"


async def soon(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE)


async def logged(is_enough: Callable[[], bool]) -> None:
    """Wait until the log fits a condition: each record, of whichever thread, wakes the wait. The
    handler of the fixture ``caplog`` has a record before this one.
    """
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    class Waker(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            loop.call_soon_threadsafe(changed.set)

    async def waiting() -> None:
        while not is_enough():
            await changed.wait()
            changed.clear()

    waker = Waker()
    logging.getLogger().addHandler(waker)
    try:
        await asyncio.wait_for(waiting(), PATIENCE)
    finally:
        logging.getLogger().removeHandler(waker)
