"""One site: a hub with a service of prices. Berlin also joins Paris. `main.py` starts both."""

from __future__ import annotations

import asyncio
import sys

import tidewire as tw

CALLS, WAITING, CALL_S = 8, 8, 0.05
"""A site runs CALLS calls at once, of CALL_S seconds each, while WAITING more wait."""


@tw.service(name="pricing")
class Pricing:
    """Prices, as slow as if a model computed them."""

    def __init__(self, place: str) -> None:
        self.place = place

    @tw.method(idempotent=True)
    async def quote(self, number: int) -> str:
        """Return the site that has computed the price of an order."""
        await asyncio.sleep(CALL_S)
        return self.place


async def main(place: str, listen: str, join: str = "") -> None:
    """Serve until the process is killed."""
    async with tw.Node(name=place) as hub:
        url = hub.listen(listen).url
        await hub.serve(Pricing(place), concurrency=CALLS, waiting=WAITING)
        if join:
            await hub.join(join, import_=["paris:pricing=pricing"])
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    tw.run(main(*sys.argv[1:]))
