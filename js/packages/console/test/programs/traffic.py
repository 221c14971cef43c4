"""A node with traffic for the console: a service, an agent, pools, an actor, and failures.

It joins the hub of the first argument, prints a line once all of it runs, and obeys its input:
"fail" makes calls fail, "block" fills the pool, "kill" kills a worker, and "statistics" prints
those of its services.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys

import tidewire as tw


class Pricing(tw.Service, visibility="public"):
    """Prices of symbols."""

    fails = False

    @tw.method
    async def quote(self, symbol: str, qty: int = 1) -> float:
        """Return the price of a symbol."""
        if self.fails:
            raise ValueError("no market data")
        return 2.5 * qty


def wait(milliseconds: int) -> int:
    signal.pause() if milliseconds < 0 else None
    return os.getpid()


async def main(url: str) -> None:
    loop = asyncio.get_running_loop()
    async with tw.Node(url, name="trader", inspect=True) as node:
        await node.serve(Pricing(), version="1.2.3")
        inbox = node.agent(lambda order: order, id="desk", type="trade")
        pool = node.pool(wait, workers=2, kind="process", name="risk")
        await asyncio.gather(*(pool.submit(0) for _ in range(4)))
        print(json.dumps({"url": url}), flush=True)
        client = node.client("pricing")
        traffic = asyncio.create_task(repeat(client, inbox))
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            match line.strip():
                case "fail":
                    Pricing.fails = True
                case "block":
                    blocked = [asyncio.ensure_future(pool.submit(-1)) for _ in range(5)]
                case "kill":
                    os.kill(next(one["pid"] for one in pool.statistics()["workers"]), signal.SIGKILL)
                case "statistics":
                    print(json.dumps(node.statistics()["services"]), flush=True)
        traffic.cancel()
        del blocked


async def repeat(client: object, inbox: object) -> None:
    while True:
        with contextlib.suppress(tw.RemoteError, ValueError):
            await client.quote("X", qty=3)
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
