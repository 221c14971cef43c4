"""Orders that are billed by workers of which one is killed, in a data folder and on NATS: the same
program, another URL.

Run it with `make demo`, or `python examples/orders/main.py --help`. Orders arrive; three workers
compete for billing them, and one is killed with SIGKILL; orders of an article without a price end
in the dead letters and are requeued after a fix; of two matchers one is active, it is killed, and
the other takes over; a command rebuilds what each customer owes, with live progress. At the end
each order must have been billed and matched once, and what is owed must be what a plain loop
computes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import tidewire as tw
from services import BILLING, Books, Match, Order, streams

ROOT = Path(__file__).resolve().parents[2]
PRICES = {"tide-table": 1_250, "chart": 890, "compass": 4_900}
MISSING, MISSING_CENTS = "sextant", 19_900
HOMES = {"folder": "a data folder, shared by a hub", "nats": "NATS JetStream"}
DEAD_LOOK_S = 0.05
SHOWN_EVERY = 0.24


def main() -> int:
    """Play it at each home; 1 if a bill is missing, double or wrong."""
    options = arguments().parse_args()
    orders = ordered(options.orders, options.seed)
    for name in HOMES if options.home == "both" else [options.home]:
        print(f"{len(orders):,} orders, on {HOMES[name]}:", flush=True)
        problem = asyncio.run(played(name, orders))
        if problem is not None:
            print(f"WRONG: {problem}", file=sys.stderr)
            return 1
    return 0


def ordered(count: int, seed: int) -> list[Order]:
    """Make orders; one in fifty is of an article that has no price yet."""
    random = Random(seed)
    articles = [*PRICES] * 16 + [MISSING]
    return [
        Order(number, f"customer-{random.randrange(40)}", random.choice(articles), random.randint(1, 9))
        for number in range(count)
    ]


def plainly(orders: list[Order]) -> dict[str, int]:
    """Compute what each customer owes with a loop."""
    owed: Counter[str] = Counter()
    for order in orders:
        owed[order.customer] += order.quantity * {**PRICES, MISSING: MISSING_CENTS}[order.article]
    return dict(owed)


async def played(name: str, orders: list[Order]) -> str | None:
    """Play it at one home, and say what is wrong."""
    begun = time.monotonic()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(home(name))
        node = await stack.enter_async_context(tw.Node(url, name="shop"))
        problem = await Shop(node, url, orders, stack).play()
    if problem is None:
        print(f"  each of {len(orders):,} orders billed once, by idempotency key; {time.monotonic() - begun:.1f} s\n")
    return problem


@asynccontextmanager
async def home(name: str) -> AsyncIterator[str]:
    """Start a home, and give its URL: from here on nothing knows which it is."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="orders-"))
        if name == "folder":
            async with tw.Node(data=folder, name="hub") as hub:
                yield hub.listen("tide://127.0.0.1:0").url
        else:
            sys.path.insert(0, str(ROOT / "tools"))
            import servers

            try:
                server = stack.enter_context(servers.started("nats"))
            except servers.Missing as missing:
                raise SystemExit(f"nats-server: {missing}") from None
            yield server["TIDEWIRE_TEST_NATS"]


class Shop:
    """The program that orders, looks on, kills, repairs and counts."""

    def __init__(self, node: tw.Node, url: str, orders: list[Order], stack: AsyncExitStack) -> None:
        self.node, self.url, self.orders, self.stack = node, url, orders, stack
        self.missing = sum(order.article == MISSING for order in orders)

    async def play(self) -> str | None:
        """Play it, and say what is wrong."""
        made = await streams(self.node)
        self.bills, self.matches = made["bills"], made["matches"]
        self.billing = await made["orders"].consumer("billing", filter="orders.created", **BILLING)
        self.prices = await self.node.kv("prices")
        for article, cents in PRICES.items():
            await self.prices.put(article, cents)
        first, *_ = await asyncio.gather(*(self.started("billing") for _ in range(3)))
        active = await self.started("matching")
        fence = await said(active)
        standby = await self.started("matching")
        killing = asyncio.ensure_future(self.kill_in_the_middle(first, active, standby, fence))
        async with made["orders"].publisher() as out:
            for order in self.orders:
                await out.publish("orders.created", order, key=order.customer, id=f"order-{order.number}")
        await killing
        await self.fix()
        return await self.rebuild() or await self.counted()

    async def started(self, role: str) -> asyncio.subprocess.Process:
        """Start a worker, and wait until it serves or stands by."""
        worker = Path(__file__).with_name("worker.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable, worker, self.url, role, stdout=asyncio.subprocess.PIPE
        )
        self.stack.push_async_callback(ended, process)
        await said(process)
        return process

    async def kill_in_the_middle(
        self,
        biller: asyncio.subprocess.Process,
        active: asyncio.subprocess.Process,
        standby: asyncio.subprocess.Process,
        fence: str,
    ) -> None:
        """Kill a worker after a third of the bills, and the active matcher after two thirds."""
        payable = len(self.orders) - self.missing
        count = 0
        async for _ in self.bills.read(follow=True):
            count += 1
            if count == payable // 3:
                os.kill(biller.pid, signal.SIGKILL)
                print(f"  after {count:,} bills one of three workers is killed with SIGKILL")
            if count == payable * 2 // 3:
                os.kill(active.pid, signal.SIGKILL)
                killed = time.monotonic()
                newer, seconds = await said(standby), time.monotonic() - killed
                print(
                    f"  the active matcher is killed; the other is active after {seconds:.2f} s: {fence}, then {newer}"
                )
            if count == payable:
                return

    async def fix(self) -> None:
        """Give the article its price, and requeue the orders that were given up."""
        while len(dead := await self.billing.dead_letters(limit=self.missing + 1)) < self.missing:
            await asyncio.sleep(DEAD_LOOK_S)
        if dead:
            print(f"  {len(dead)} orders are dead letters, such as: {dead[0].error}")
        await self.prices.put(MISSING, MISSING_CENTS)
        await self.billing.requeue(*(letter.sequence for letter in dead))
        if dead:
            print(f"  {MISSING} has a price now, and they are requeued")
        await until(self.bills, len(self.orders))
        await until(self.matches, len(self.orders))

    async def rebuild(self) -> str | None:
        """Have what is owed computed by a command, and compare it with a plain loop."""
        await self.started("books")
        run = await self.node.client(Books).rebuild.start(key="owed", id="rebuild-owed")
        shown = 0.0
        async for report in run.progress():
            if report.fraction >= shown:
                print(f"  command {run.id}: {report.fraction:4.0%} {report.note}")
                shown = report.fraction + SHOWN_EVERY
        result, plain = await run.result(), plainly(self.orders)
        owed = await self.node.kv("owed")
        stored = {name: entry.value for name in plain if (entry := await owed.get(name)) is not None}
        print(f"  what {len(plain)} customers owe was rebuilt: {sum(result.values()) / 100:,.2f} in all")
        wrong = {name: (result.get(name), stored.get(name), cents) for name, cents in plain.items()}
        wrong = {name: of for name, of in wrong.items() if len(set(of)) > 1}
        return f"what is owed, as rebuilt, as stored, and as it should be: {wrong}" if wrong else None

    async def counted(self) -> str | None:
        """Count bills and matches: one of each order, and no match by a holder after a newer
        one.
        """
        billed = Counter([event.value.order async for event in self.bills.read()])
        matches: list[Match] = [event.value async for event in self.matches.read()]
        matched = Counter(match.order for match in matches)
        once = Counter(order.number for order in self.orders)
        if billed != once or matched != once:
            differs = (billed - once) + (once - billed), (matched - once) + (once - matched)
            return f"not once: bills of the orders {dict(differs[0])}, matches of {dict(differs[1])}"
        fences = [match.fence for match in matches]
        return None if fences == sorted(fences) else "a matcher went on after another was active"


async def until(stream: tw.Stream, count: int) -> None:
    """Wait until a stream has so many events."""
    seen = 0
    async for _ in stream.read(follow=True):
        seen += 1
        if seen == count:
            return


async def said(process: asyncio.subprocess.Process) -> str:
    """Return the next line of a worker."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise SystemExit(f"a worker ended with {await process.wait()}")
    return line.decode().strip()


async def ended(process: asyncio.subprocess.Process) -> None:
    """End a worker, if it was not killed."""
    if process.returncode is None:
        process.terminate()
        await process.wait()


def arguments() -> argparse.ArgumentParser:
    """Return what can be said on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--orders", type=int, default=3_000, help="how many orders")
    parser.add_argument("--home", choices=[*HOMES, "both"], default="both", help="where they live")
    parser.add_argument("--seed", type=int, default=7, help="of the orders")
    return parser


if __name__ == "__main__":
    sys.exit(main())
