"""The services of the orders: billing by competing workers, matching by one that is active, a
projection that a command rebuilds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import tidewire as tw

STREAMS = {"orders": ["orders.>"], "bills": ["bills.>"], "matches": ["matches.>"]}
BILLING: dict[str, Any] = {"start": "all", "ack_wait": 2.0, "max_deliver": 3, "backoff": (0.05, 0.1)}
PART = 100


@dataclass(frozen=True)
class Order:
    """Order of a customer."""

    number: int
    customer: str
    article: str
    quantity: int


@dataclass(frozen=True)
class Bill:
    """Bill of an order."""

    order: int
    customer: str
    cents: int


@dataclass(frozen=True)
class Match:
    """Match of a bill, with its matcher: the fence grows with each holder of the lease."""

    order: int
    fence: int


class Billing(tw.Service):
    """Bills orders. Its instances compete for the orders; the others take over those of a killed
    instance.
    """

    def __init__(self, prices: tw.Bucket, bills: tw.Stream) -> None:
        self.prices, self.bills = prices, bills

    @tw.on("orders.created", durable="billing", concurrency=8, **BILLING)
    async def on_order(self, order: Order) -> None:
        price = await self.prices.get(order.article)
        if price is None:
            raise LookupError(f"order {order.number}: {order.article!r} has no price")
        bill = Bill(order.number, order.customer, order.quantity * price.value)
        # Delivery is at least once; by its id a bill is stored once.
        await self.bills.publish("bills.issued", bill, id=f"bill-{order.number}")


class Matching(tw.Service):
    """Matches bills. It is served with ``active="single"``: of all who serve it, one does."""

    def __init__(self, matches: tw.Stream) -> None:
        self.matches = matches

    @tw.on("bills.issued", durable="matching", start="all", ack_wait=2.0, max_deliver=0, concurrency=32)
    async def on_bill(self, bill: Bill, call: tw.CallContext) -> None:
        match = Match(bill.order, call.fence)
        await self.matches.publish("matches.made", match, id=f"match-{bill.order}")


class Books(tw.Service):
    """Debts of the customers, as a projection of the bills."""

    def __init__(self, bills: tw.Stream, owed: tw.Bucket) -> None:
        self.bills, self.owed = bills, owed

    @tw.command(retries=3, exclusive="key")
    async def rebuild(self, progress: tw.Progress) -> dict[str, int]:
        last = (await self.bills.info()).last
        sums: Counter[str] = Counter()
        async for event in self.bills.read(stop=last):
            bill: Bill = event.value
            sums[bill.customer] += bill.cents
            if event.sequence % PART == 0:
                await progress(event.sequence / last, f"{event.sequence:,} of {last:,} bills")
                # So that it can be watched.
                await asyncio.sleep(0.01)
        for customer, cents in sums.items():
            await self.owed.put(customer, cents)
        return dict(sums)


async def streams(node: tw.Node) -> dict[str, tw.Stream]:
    """Make the streams, or find them."""
    return {name: await node.stream(name, subjects=subjects) for name, subjects in STREAMS.items()}
