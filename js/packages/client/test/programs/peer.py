"""Peers of the tests of the TypeScript client: a hub, and a node of Python that serves and calls.

    python peer.py hub [PORT]       a hub on loopback
    python peer.py server URL       a node that serves `pricing`, `shop`, `values` and `driver`
    python peer.py worker URL       a node that does the commands of `books`

Prints one line of JSON once it is ready, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import json
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import tidewire as tw


@dataclass
class Quote:
    symbol: str
    price: float
    qty: int = 1


class Pricing(tw.Service):
    """Prices of things."""

    def __init__(self) -> None:
        self.open = self.begun = self.cancelled = 0

    @tw.method
    async def quote(self, symbol: str, qty: int = 1) -> Quote:
        """Quote a price."""
        return Quote(symbol, 2.5 * qty, qty)

    @tw.method
    async def ticks(self, symbol: str, count: int = 1_000_000) -> AsyncIterator[float]:
        self.open += 1
        try:
            for n in range(count):
                yield n * 0.5
        finally:
            self.open -= 1

    @tw.method
    async def slow(self) -> str:
        self.begun += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "done"

    @tw.method
    async def state(self) -> dict[str, int]:
        return {"open": self.open, "begun": self.begun, "cancelled": self.cancelled}

    @tw.method
    async def broken(self, text: str) -> None:
        raise KeyError(text)

    @tw.method
    async def headers(self) -> dict[str, str]:
        return dict(tw.context().headers)


class Shop(tw.Service):
    """Takes functions, objects and streams, and gives some."""

    @tw.method
    async def pack(self, boxes: int, progress: Callable[[int], Awaitable[Any]]) -> str:
        for box in range(boxes):
            await progress(box)
        return "packed"

    @tw.method
    async def total(self, numbers: AsyncIterator[int]) -> int:
        return sum([n async for n in numbers])

    @tw.method
    async def first(self, numbers: AsyncIterator[int], count: int) -> list[int]:
        found = []
        async for n in numbers:
            found.append(n)
            if len(found) == count:
                break
        return found

    @tw.method
    async def greet(self, cart: Any) -> str:
        return await cart.title("Ana")

    @tw.method
    async def counter(self) -> Any:
        return Counter()

    @tw.method
    async def adder(self, by: int) -> Any:
        return lambda number: number + by

    @tw.method
    async def is_mine(self, counter: Any) -> bool:
        return isinstance(counter, Counter)


class Counter(tw.Service):
    def __init__(self) -> None:
        self.count = 0

    @tw.method
    async def add(self, by: int = 1) -> int:
        self.count += by
        return self.count

    @tw.method
    async def upto(self, end: int) -> AsyncIterator[int]:
        for n in range(end):
            yield n


SAMPLES: dict[str, Any] = {
    "nil": None,
    "int": 7,
    "big": 2**63 + 1,
    "small": -(2**63),
    "float": 1.5,
    "text": "grün 🌊",
    "bytes": b"\x00\xff",
    "long bytes": b"ab" * 5000,
    "bytearray": bytearray(b"abc"),
    "list": [1, "two", [None]],
    "tuple": (1, (2, 3)),
    "set": {1, 2, 3},
    "frozenset": frozenset({"x"}),
    "dict": {"a": 1, "b": {"c": [1.5]}},
    "mixed dict": {1: "one", (2, 3): "pair", "x": None},
    "datetime": dt.datetime(2026, 11, 21, 8, 0, 0, 123_456, tzinfo=dt.UTC),
    "zoned": dt.datetime(2026, 11, 21, 8, 0, tzinfo=dt.timezone(dt.timedelta(hours=-5))),
    "naive": dt.datetime(2026, 11, 21, 8, 0, 0, 5),
    "date": dt.date(2026, 11, 21),
    "time": dt.time(8, 30, 0, 1),
    "timedelta": dt.timedelta(days=-1, seconds=5, microseconds=7),
    "decimal": Decimal("-1.50"),
    "uuid": uuid.UUID("12345678-1234-5678-1234-567812345678"),
    "complex": 1 - 2j,
    "record": Quote("X", 2.5, 3),
    "counter": collections.Counter("aab"),
    "counter of numbers": collections.Counter([1, 1, 2]),
    "ordered dict": collections.OrderedDict(b=1, a=2),
    "default dict": collections.defaultdict(list, {1: [2]}),
    "array": np.arange(6, dtype="<f8").reshape(2, 3),
    "long array": np.arange(10_000, dtype="<i4"),
    "fortran": np.asfortranarray(np.arange(6, dtype="<u2").reshape(2, 3)),
    "bools": np.array([True, False, True]),
    "int64": np.array([1, -(2**60)], dtype="<i8"),
    "moments": np.array(["2026-11-21T08:00"], dtype="datetime64[us]"),
}


def difference(wanted: Any, value: Any) -> str:
    if isinstance(wanted, np.ndarray):
        same = isinstance(value, np.ndarray) and value.dtype == wanted.dtype and bool((value == wanted).all())
    else:
        same = type(value) is type(wanted) and value == wanted
    return "" if same else f"{type(value).__name__} {value!r}"


class Values(tw.Service):
    """Gives and takes a value of every type."""

    @tw.method
    async def echo(self, value: Any) -> Any:
        return value

    @tw.method
    async def names(self) -> list[str]:
        return list(SAMPLES)

    @tw.method
    async def get(self, name: str) -> Any:
        return SAMPLES[name]

    @tw.method
    async def check(self, name: str, value: Any) -> str:
        """Say what differs; empty if nothing does."""
        return difference(SAMPLES[name], value)

    @tw.method
    async def type_of(self, value: Any) -> str:
        return f"{type(value).__name__} {value!r}"


class Driver(tw.Service):
    """Calls what others serve."""

    def __init__(self, node: tw.Node) -> None:
        self._node = node

    @tw.method
    async def call(self, service: str, method: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        await self._known(service)
        return await getattr(self._node.client(service), method)(*args, **kwargs)

    @tw.method
    async def read(self, service: str, method: str, args: list[Any], count: int) -> list[Any]:
        await self._known(service)
        found = []
        async with getattr(self._node.client(service), method)(*args) as items:
            async for item in items:
                found.append(item)
                if len(found) == count:
                    break
        return found

    @tw.method
    async def failure(self, service: str, method: str, args: list[Any]) -> dict[str, Any]:
        await self._known(service)
        try:
            await getattr(self._node.client(service), method)(*args)
        except Exception as error:  # noqa: BLE001
            return {
                "type": type(error).__name__,
                "message": str(error),
                "type_name": getattr(error, "type_name", ""),
                "traceback": getattr(error, "remote_traceback", ""),
            }
        return {}

    @tw.method
    async def give_up(self, service: str, method: str, seconds: float) -> str:
        await self._known(service)
        try:
            await getattr(self._node.client(service), method).with_(timeout=seconds)()
        except tw.AskTimeout:
            return "late"
        return "answered"

    @tw.method
    async def callback(self, service: str) -> list[int]:
        await self._known(service)
        seen: list[int] = []
        await self._node.client(service).each(3, seen.append)
        return seen

    @tw.method
    async def publish(self, subject: str, value: Any, times: int = 1) -> None:
        for _ in range(times):
            self._node.publish(subject, value)

    @tw.method
    async def request(self, subject: str, value: Any) -> Any:
        return await self._node.request(subject, value)

    @tw.method
    async def store(self, stream: str, subject: str, name: str) -> int:
        """Publish one of the values of `values` on a stream."""
        return (await (await self._node.find_stream(stream)).publish(subject, SAMPLES[name])).sequence

    @tw.method
    async def stored(self, stream: str, sequence: int, name: str) -> str:
        """Say what is wrong with an event that is to be one of the values of `values`; nothing if
        it is right.
        """
        async for event in (await self._node.find_stream(stream)).read(sequence, sequence):
            return difference(SAMPLES[name], event.value)
        return "nothing is there"

    @tw.method
    async def entry(self, bucket: str, key: str, value: Any) -> int:
        """Write a value into a bucket."""
        return await (await self._node.find_kv(bucket)).put(key, value)

    async def _known(self, service: str) -> None:
        await self._node.until(lambda now: now["links"]["services"].get(service, 0) > 0, timeout=10)


class Books(tw.Service):
    """Commands, and what lets them go on."""

    def __init__(self, node: tw.Node) -> None:
        self._node = node
        self._gate = asyncio.Event()
        self._broken = True

    @tw.command(retries=0)
    async def reindex(self, shard: int, progress: tw.Progress, name: str = "") -> Quote:
        progress(0.5, f"half of {shard}")
        await self._gate.wait()
        return Quote(name, 0.5, shard)

    @tw.command(retries=0)
    async def close_year(self, year: int) -> str:
        if self._broken:
            raise tw.LimitExceeded(f"no balance of {year - 1}")
        return f"{year} is closed"

    @tw.method
    async def go_on(self) -> None:
        self._gate.set()

    @tw.method
    async def fix(self) -> None:
        self._broken = False

    @tw.method
    async def start(self, command: str, args: list[Any], id: str) -> str:
        """Start a command from here."""
        return (await self._node.start_command("books", command, *args, id=id)).id


def say(**said: Any) -> None:
    print(json.dumps(said), flush=True)


async def until_end_of_input() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def hub(port: str = "0") -> None:
    async with tw.Node(name="hub") as node:
        say(url=node.listen(f"ws://127.0.0.1:{port}").url)
        await until_end_of_input()


async def server(url: str) -> None:
    async with tw.Node(url, name="server", config={"links": {"link_heartbeat_ms": 1000}}) as node:
        for service in (Pricing(), Shop(), Values(), Driver(node)):
            await node.serve(service)
        await node.subscribe("double", lambda number: number * 2)
        say(ready=True)
        await until_end_of_input()


async def worker(url: str) -> None:
    async with tw.Node(url, name="worker") as node:
        await node.serve(Books(node))
        say(ready=True)
        await until_end_of_input()


if __name__ == "__main__":
    asyncio.run({"hub": hub, "server": server, "worker": worker}[sys.argv[1]](*sys.argv[2:]))
