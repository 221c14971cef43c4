"""Links: what a typed client makes of results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import tidewire as tw
from remote_support import desk_nodes


@dataclass
class Quote:
    symbol: str
    price: float


class Tick(msgspec.Struct):
    price: float


class Pair(NamedTuple):
    first: int
    second: int


class Desk(tw.Service, name="desk"):
    @tw.method
    async def quote(self, symbol: str) -> Quote:
        return Quote(symbol, 2.0)

    @tw.method
    async def quotes(self) -> dict[str, list[Quote]]:
        return {}

    @tw.method
    async def maybe(self) -> Quote | None:
        return None

    @tw.method
    async def ticks(self) -> AsyncIterator[Tick]:
        yield Tick(1.0)

    @tw.method
    async def pair(self) -> Pair:
        return Pair(1, 2)

    @tw.method
    async def wrong(self) -> Quote:
        return Quote("", 0.0)


class Elsewhere:
    """Serves the same methods, with types that the caller does not know."""

    async def quote(self, symbol: str) -> Any:
        return {"symbol": symbol, "price": 2}

    async def quotes(self) -> Any:
        return {"all": [{"symbol": "X", "price": 1.5}]}

    async def maybe(self) -> Any:
        return None

    async def ticks(self) -> AsyncIterator[Any]:
        yield {"price": 1.0}
        yield {"price": 2.5}

    async def pair(self) -> Any:
        return [1, 2]

    async def wrong(self) -> Any:
        return {"other": 1}


async def test_a_typed_client_gives_the_types_of_its_annotations() -> None:
    async with desk_nodes(Elsewhere()) as world:
        desk = world.caller.client(Desk)
        assert await desk.quote("X") == Quote("X", 2.0)
        assert await desk.quotes() == {"all": [Quote("X", 1.5)]}
        assert await desk.maybe() is None
        assert [tick async for tick in desk.ticks()] == [Tick(1.0), Tick(2.5)]
        assert await desk.pair() == Pair(1, 2)
        assert await asyncio.to_thread(desk.sync.quote, "Y") == Quote("Y", 2.0)
        assert await asyncio.to_thread(lambda: list(desk.sync.ticks())) == [Tick(1.0), Tick(2.5)]
        (answer,) = await desk.with_(policy="all").quote("Z")
        assert answer.value == Quote("Z", 2.0)
        # A result that does not fit is given as it came, as within a process.
        assert await desk.wrong() == {"other": 1}
        # A client that knows no types gives what came.
        assert await world.caller.client("desk").quote("X") == {"symbol": "X", "price": 2}
