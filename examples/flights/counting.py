"""The process of the specialists: what its node serves, and its life."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import data
import tidewire as tw
from actors import Specialists
from data import Flight

WEATHER = "weather.at"
"""Who asks on this subject gives an airport and an hour."""
COUNTED = "flights.counted"
"""Published when all alerts have been: events of one sender arrive in order."""


@dataclass
class Counted:
    """Totals that the specialists hand over at the end."""

    totals: dict[str, dict[Any, int]]
    restarts: int
    audited: tw.Ledger
    dead: dict[str, int]


class Counting(tw.Service):
    """Takes flights, and tells what was counted."""

    def __init__(self, specialists: Specialists) -> None:
        self.specialists = specialists

    @tw.method
    async def take(self, rows: list[tuple[Any, ...]]) -> int:
        """Hand flights to the auditor. The answer comes when it has room for all of them, so that
        the reader waits.
        """
        auditor = await self.specialists.auditor()
        for row in rows:
            await auditor.send(Flight._make(row))
        return len(rows)

    @tw.method(timeout=60.0)
    async def finish(self) -> Counted:
        """Handle everything that was taken."""
        specialists = self.specialists
        totals = await specialists.finish()
        node = specialists.node
        node.publish(COUNTED, totals.flights["all"])
        dead = node.statistics()["dead_letters"]
        return Counted(totals.maps(), specialists.restarts, specialists.ledger, dict(dead))


async def serve(url: str, closed: asyncio.Event) -> None:
    """Be the specialists until somebody says that it is over, then say the ledger."""
    async with tw.Node(url, name="specialists") as node:
        node.subscribe(WEATHER, node.spawn(data.weather().get, name="weather"))
        await node.serve(Counting(Specialists(node, None)))
        print("ready", flush=True)
        await closed.wait()
    assert node.ledger is not None
    ledger = node.ledger
    print(json.dumps([ledger.accepted, ledger.handled, ledger.returned, ledger.dead_lettered]), flush=True)
