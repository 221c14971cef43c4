"""A node with traffic for the console: a service, an agent, pools, an actor, and failures.

It joins the hub of the first argument, prints a line once all of it runs, and obeys its input:
"fail" makes calls fail, "fix" ends that, "block" fills the pool, "kill" kills a worker, "crowd"
makes 600 agents; "services" and "links" print the statistics of these. "simulate
FILE" runs a campaign, "study" and "report" print how that is and ends. "open" makes a pool, and
"spare" prints how it is.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time

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

    @tw.command(retries=0)
    async def reprice(self, symbol: str, progress: tw.Progress) -> dict[str, str]:
        """Find the price of a symbol again."""
        await progress(0.5, symbol)
        if symbol == "slow":
            await asyncio.Event().wait()
        if self.fails:
            raise LookupError(f"no market data of {symbol}")
        return {"symbol": symbol}


def wait(milliseconds: int) -> int:
    signal.pause() if milliseconds < 0 else None
    return os.getpid()


def study(run: tw.Run) -> float:
    if run.index % 10 == 1:
        raise ValueError(f"no sample of {run.index}")
    time.sleep(0.02)
    return run.random.random()


async def main(url: str) -> None:
    loop = asyncio.get_running_loop()
    async with tw.Node(url, name="trader", inspect=True, spans=2_000) as node:
        await node.serve(Pricing(), version="1.2.3")
        inbox = node.agent(lambda order: order, id="desk", type="trade")
        pool = node.pool(wait, workers=2, kind="process", name="risk")
        await asyncio.gather(*(pool.submit(0) for _ in range(4)))
        print(json.dumps({"url": url}), flush=True)
        client = node.client("pricing")
        traffic = asyncio.create_task(repeat(client, inbox))
        kept: list[object] = []
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            match line.strip():
                case "fail":
                    Pricing.fails = True
                case "fix":
                    Pricing.fails = False
                case "block":
                    kept += [asyncio.ensure_future(pool.submit(-1)) for _ in range(5)]
                case "kill":
                    os.kill(next(one["pid"] for one in pool.statistics()["workers"]), signal.SIGKILL)
                case "open":
                    spare = node.pool(wait, workers=tw.Scale(1, 4), name="spare")
                    await spare.submit(0)
                case "spare":
                    print(json.dumps([spare.state, len(spare.statistics()["workers"])]), flush=True)
                case "crowd":
                    ids = (f"<img/src=x/onerror=alert(1)>{number}" for number in range(600))
                    kept += [node.agent(lambda order: order, id=one) for one in ids]
                case command if command.startswith("simulate "):
                    campaign = tw.campaign(study, runs=100_000, store=command[9:], name="study", attempts=1)
                    simulation = asyncio.ensure_future(campaign.run_async(1, progress=False))
                case "study":
                    status = campaign.status()
                    print(json.dumps([status.reason, status.done, status.leased]), flush=True)
                case "report":
                    print(json.dumps((await simulation).state), flush=True)
                case "services" | "links" as kind:
                    print(json.dumps(node.statistics()[kind]), flush=True)
        traffic.cancel()


async def repeat(client: object, inbox: object) -> None:
    while True:
        with contextlib.suppress(tw.RemoteError, ValueError):
            await client.quote("X", qty=3)
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
