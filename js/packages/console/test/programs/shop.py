"""A node that sells: a call that leads to another node, to an event and to a command.

It joins the hub of the first argument, stores its spans, and prints a line once it serves.
"""

import asyncio
import sys

import tidewire as tw


class Shop(tw.Service, visibility="public"):
    def __init__(self, node: tw.Node, sales: tw.Stream) -> None:
        self.node, self.sales = node, sales

    @tw.method
    async def sell(self, symbol: str) -> float:
        """Sell one, and book it."""
        pricing = self.node.client("pricing")
        price: float = await pricing.quote(symbol, qty=2)
        await self.sales.publish("sales.new", symbol)
        await pricing.reprice.start(symbol, id=f"reprice-{symbol}")
        return price

    @tw.on("sales.>", durable="book", max_deliver=1)
    async def book(self, symbol: str) -> None:
        raise ValueError(f"no account of {symbol}")


async def main(url: str) -> None:
    async with tw.Node(url, name="shop", inspect=True, spans=500) as node:
        await node.serve(Shop(node, await node.stream("sales", subjects=["sales.>"])))
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
