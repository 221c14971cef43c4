"""The agents of the pools under test. A module of its own, so that worker processes import
little.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path
from typing import Any

import tidewire as tw


@dataclasses.dataclass
class Order:
    symbol: str
    qty: int


def worker() -> str:
    """Return what tells a worker from others."""
    return f"{os.getpid()}-{threading.get_ident()}"


class Counter(tw.Agent):
    """Counts what its worker handled, and leaves a line in a file for each step of its life."""

    type = "counter"
    capabilities = ("count",)

    def __init__(self, life: str = "") -> None:
        self.count = 0
        self._life = life

    def started(self) -> None:
        self.count = 100
        self._note("started")

    def stopped(self) -> None:
        self._note(f"stopped {self.count}")

    def receive(self, payload: Any) -> tuple[str, int]:
        self.count += 1
        return worker(), self.count

    def _note(self, step: str) -> None:
        if self._life:
            with open(self._life, "a") as file:
                file.write(f"{worker()} {step}\n")


class Shop(tw.Agent):
    """Has a handler for each way to choose one."""

    type = "shop"

    def __init__(self) -> None:
        self.price = 0.0

    @tw.handle
    async def on_order(self, order: Order) -> float:
        return order.qty * 2.5

    @tw.handle(topic="market.*")
    def on_market(self, price: float, message: tw.Message) -> None:
        Path(str(message.headers["note"])).write_text(f"{message.topic} {price}")

    @tw.handle(kind="status")
    def on_status(self, payload: Any, message: tw.Message) -> None:
        payload.write_text(f"{message.sender} {message.kind} {message.delivery} {message.priority}")

    @tw.handle(payload=str)
    def on_text(self, message: tw.Message) -> Any:
        return message.sender, message.recipients, dict(message.headers), message.correlation_id, message.reply_to

    @tw.handle(payload=list)
    def on_list(self, items: list[Any], message: tw.Message) -> str:
        message.respond([*items, message.cancelled])
        return "not this"

    def unhandled(self, message: tw.Message) -> Any:
        return type(message.payload).__name__, message.payload


class Fragile:
    """Not derived from tw.Agent: an object with receive will do."""

    def __init__(self, folder: str, deaths: int = 1) -> None:
        self._folder = Path(folder)
        self._deaths = deaths

    def receive(self, payload: int) -> int:
        """Kill the worker in the middle of a request, so often."""
        times = self._noted(str(payload))
        if payload < 0 and times <= self._deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        return payload

    def _noted(self, name: str) -> int:
        with open(self._folder / name, "a") as file:
            file.write("x")
        return (self._folder / name).stat().st_size


class Waiting:
    """Waits for the other end of a named pipe."""

    def receive(self, path: str) -> str:
        if path:
            Path(path).read_bytes()
        return path


class Failing(tw.Agent):
    def receive(self, payload: int) -> float:
        return 1 / payload


class Sending(tw.Agent):
    def receive(self, what: str) -> Any:
        if what == "send":
            return self.tell("x", to="log")
        if what == "request":
            return self.sync.request("x", to="echo", timeout=20)
        if what == "publish":
            return self.publish("news.x", 1)
        if what == "context":
            return dict(self.context)
        return repr(self)


class SendingAsync(tw.Agent):
    async def receive(self, what: str) -> Any:
        return await self.request(what, to="echo", timeout=20)


class NoStart(tw.Agent):
    def started(self) -> None:
        raise OSError("no model here")

    def receive(self, payload: Any) -> None:
        """Never called."""


class StartTakesContext(tw.Agent):
    def started(self, context: Any) -> None:
        """Wants what a worker has not."""

    def receive(self, payload: Any) -> None:
        """Never called."""


class TooMuch(tw.Agent):
    def receive(self, payload: Any, message: tw.Message, more: Any) -> None:
        """Takes too much."""


class NoHandler(tw.Agent):
    """Has none."""


def same(payload: Any) -> Any:
    return payload


def double(payload: int, message: tw.Message) -> tuple[int, str]:
    return payload * 2, message.sender
