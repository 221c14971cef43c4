"""A node of Python for the stories of Rust: ``workshop.py serve URL`` serves until its input ends,
``workshop.py call URL`` calls a service of Rust.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import tidewire as tw


@dataclass
class Quote:
    symbol: str
    price: float
    tags: list[str]
    note: str | None = None


class OutOfStock(Exception):
    """Error of a shop with nothing left."""


class Workshop(tw.Service):
    """A service that Rust calls."""

    @tw.method
    async def quote(self, symbol: str, qty: int = 1) -> Quote:
        """Quote a price."""
        return Quote(symbol, 2.5 * qty, ["new"])

    @tw.method
    async def take(self, quote: Quote) -> str:
        assert isinstance(quote, Quote)
        return f"{quote.symbol} at {quote.price}"

    @tw.method
    async def echo(self, value: Any) -> Any:
        return value

    @tw.method
    async def values(self) -> dict[str, Any]:
        return {
            "none": None,
            "big": 2**64 - 1,
            "small": -(2**63),
            "float": 0.5,
            "bytes": b"\0\xff",
            "long": b"x" * 100_000,
            "tuple": (1, "a"),
            "set": {7},
            "utc": datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC),
            "date": datetime.date(2026, 11, 21),
            "duration": datetime.timedelta(days=1, seconds=2, microseconds=3),
            "decimal": decimal.Decimal("-1.50"),
            "uuid": uuid.UUID("12345678-1234-5678-1234-567812345678"),
            "quote": Quote("X", 1.5, []),
        }

    @tw.method
    async def sold_out(self) -> None:
        raise OutOfStock("nothing is left")

    @tw.method
    async def count(self, end: int) -> AsyncIterator[int]:
        try:
            for number in range(end):
                yield number
            raise OutOfStock("no more")
        finally:
            say("closed")


def say(line: str) -> None:
    print(line, flush=True)


async def serve(url: str) -> None:
    async with tw.Node(url, name="python") as node:
        await node.serve(Workshop())
        node.subscribe("double", lambda number: number * 2)
        await node.request("double", 1)
        say("ready")
        await asyncio.to_thread(sys.stdin.read)


async def call(url: str) -> None:
    async with tw.Node(url, name="python") as node:
        shop, loop = node.client("shop"), asyncio.get_running_loop()
        begun: asyncio.Queue[str] = asyncio.Queue()
        node.subscribe("begun", lambda what: loop.call_soon_threadsafe(begun.put_nowait, what))
        assert await shop.quote("X", qty=3) == {"symbol": "X", "price": 7.5, "tags": ["new"], "note": None}
        assert await shop.quote("X") == {"symbol": "X", "price": 2.5, "tags": ["new"], "note": None}
        assert await shop.take(Quote("Y", 1.5, ["a"], "n")) == "Y at 1.5"
        when = datetime.datetime(2026, 11, 21, 8, 0, 0, 5, tzinfo=datetime.UTC)
        day = datetime.timedelta(days=-1, microseconds=5)
        mixed = [None, True, -(2**63), 2**64 - 1, 0.5, "é", b"b", bytearray(b"c"), (1, 2), {1}, {(1,): [2]}, when, day]
        mixed += [b"long" * 5_000, decimal.Decimal("1.50"), uuid.UUID(int=7), when.date(), when.time(), 1 - 2j]
        assert await shop.echo(mixed) == mixed
        await fails(shop.sold_out(), tw.RemoteError, "nothing is left")
        await fails(shop.quote("X", qty="many"), tw.InvalidArgument, 'qty: invalid type: string "many", expected u32')
        await fails(shop.quote("X", 1, 2), tw.InvalidArgument, "3 arguments are more than the 2 that it takes")
        await fails(shop.with_(timeout=0.05).hold(), tw.AskTimeout, "no answer came in time")
        assert [number async for number in shop.count(300)] == list(range(300))
        stream = shop.forever()
        async for number in stream:
            if number == 100:
                break
        await stream.aclose()
        holding = asyncio.ensure_future(shop.with_(timeout=20.0).hold())
        assert await begun.get() == await begun.get() == "held"
        holding.cancel()
        [info] = [info for info in await node.services() if info.name == "shop"]
        assert info.description == "What Python calls." and len(info.instances) == 2
        quote = next(method for method in info.methods if method.name == "quote")
        assert list(quote.parameters["properties"]) == ["symbol", "qty"]
        assert await shop.with_(instance="blue").where() == "blue"
        answers = await shop.with_(policy="all").where()
        assert sorted(answer.value for answer in answers) == ["blue", "green"]
        assert {await shop.where() for _ in range(4)} == {"blue", "green"}
        assert await node.request("treble", 14) == 42
        node.publish("orders.new", {"id": 7})
        say("done")
        await asyncio.to_thread(sys.stdin.read)


async def fails(call: Any, error: type[Exception], text: str) -> None:
    try:
        await call
    except error as raised:
        assert text in str(raised), str(raised)
    else:
        raise AssertionError(f"it did not fail with {error.__name__}")


if __name__ == "__main__":
    asyncio.run({"serve": serve, "call": call}[sys.argv[1]](sys.argv[2]))
