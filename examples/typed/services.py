"""Types of services: what mypy and pyright know of methods, of clients, and of streams. CI runs
both on this program.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import tidewire as tw


@dataclass
class Quote:
    symbol: str
    price: float


class Pricing(tw.Service):
    """Prices of symbols."""

    @tw.method
    def quote(self, symbol: str, qty: int = 1) -> Quote:
        """A price, now."""
        return Quote(symbol, 2.5 * qty)

    @tw.method(idempotent=True)
    async def best(self, call: tw.CallContext, symbol: str) -> float:
        """The context comes first: callers don't give it."""
        assert call.method == "best"
        return self.quote(symbol).price

    @tw.method
    async def ticks(self, symbol: str) -> AsyncIterator[Quote]:
        for qty in range(3):
            yield self.quote(symbol, qty)

    @tw.method
    def beats(self, *, count: int) -> Iterator[int]:
        yield from range(count)

    @tw.method
    def echo(self, value: Any) -> Any:
        return value

    @tw.method
    @classmethod
    def half(cls, number: int) -> float:
        return number / 2


@tw.service
class Plain:
    """A class with another base, or none, is a service too; type checkers let everything pass at
    its clients.
    """

    def double(self, number: int) -> int:
        return 2 * number


async def ask(pricing: tw.Client[Pricing]) -> None:
    """A client is annotated as one."""
    assert_type(await pricing.quote("X", qty=3), Quote)
    assert_type(await pricing.best("X"), float)
    assert_type(await pricing.half(3), float)
    assert_type(await pricing.with_(timeout=2.0).quote("X"), Quote)
    assert_type(await pricing.quote.with_(priority="high")("X"), Quote)
    assert await pricing.echo("X") == "X"
    async for tick in pricing.ticks("X"):
        assert_type(tick, Quote)
    async with pricing.beats(count=3) as beats:
        async for beat in beats:
            assert_type(beat, int)
    task = asyncio.create_task(pricing.best("X"))
    assert_type(await task, float)


async def refused(pricing: tw.Client[Pricing]) -> None:
    """Errors that type checkers find. The function is not run."""
    await pricing.quote(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await pricing.quote("X", amount=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await pricing.quota("X")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    await pricing.ticks("X")  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
    price: float = await pricing.quote("X")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert price


async def refused_options(node: tw.Node) -> None:
    """Errors in options that type checkers find. The function is not run."""
    assert_type(node.serve(Plain(), name="plain", concurrency=2), tw.Served)
    assert_type(node.serve(Plain(), active="single", lease=1.0), tw.SingleActive)
    node.serve(Plain(), visiblity="node")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    node.serve(Plain(), waiting="many")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    node.pool(sorted, capacty=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def block(node: tw.Node) -> None:
    """In a plain thread."""
    quote: Quote = node.client(Pricing).sync.quote("X")
    assert quote.price == 2.5


async def main() -> None:
    assert_type(Pricing().quote("X"), Quote)
    async with tw.Node() as node:
        await node.serve(Pricing())
        await node.serve(Plain())
        await ask(node.client(Pricing))
        await asyncio.to_thread(block, node)
        plain = node.client(Plain)
        assert await plain.with_(timeout=2.0).double(4) == 8
        assert await asyncio.to_thread(plain.sync.double, 4) == 8


if __name__ == "__main__":
    asyncio.run(main())
    print("services: types as they should be")
