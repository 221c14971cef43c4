"""One hub whose console shows the systems at work: flights, orders, a desk of agents, a campaign,
and a command.

Run it with `make console`, and open the printed page. Orders of an article without a price end in
the dead letters. Every half minute a worker is killed with SIGKILL, and another takes over.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
ORDERS = HERE.parent / "orders"
sys.path.append(str(ORDERS))

import tidewire as tw
from services import Order, streams

ARTICLES = {"tide-table": 1_250, "chart": 890, "compass": 4_900}
MISSING = "sextant"
ORDERS_PER_S, KILL_EVERY_S, REBUILD_EVERY_S = 20, 30.0, 20.0


async def main(port: int, seconds: float | None) -> None:
    """Be the hub, and start the other programs, until Ctrl-C or for some seconds."""
    with tempfile.TemporaryDirectory() as folder:
        async with tw.Node(name="hub", data=folder, inspect=True) as node, AsyncExitStack() as programs:
            url = node.listen("tide://127.0.0.1:0").url
            web = node.listen(f"http://127.0.0.1:{port}", http=tw.Http(console=True, console_admin=True))
            await streams(node)
            prices = await node.kv("prices")
            for article, cents in ARTICLES.items():
                await prices.put(article, cents)
            billing = [await programs.enter_async_context(program(ORDERS / "worker.py", url, "billing")) for _ in "ab"]
            for file, role in (
                (ORDERS / "worker.py", "matching"),
                (ORDERS / "worker.py", "books"),
                (HERE / "part.py", "flights"),
                (HERE / "part.py", "desk"),
                (HERE / "part.py", "races"),
            ):
                await programs.enter_async_context(program(file, url, role))
            print(f"open {web.url}/console/  (Ctrl-C ends it)", flush=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.gather(order(node), rebuild(node), kill(programs, billing, url))


@asynccontextmanager
async def program(file: Path, url: str, role: str):
    """A program in a process of its own, once it has printed a line; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, file, url, role, stdout=asyncio.subprocess.PIPE, env={**os.environ, "TIDEWIRE_INSPECT": "1"}
    )
    assert process.stdout is not None
    if not await process.stdout.readline():
        sys.exit(f"console: {file.name} {role} has ended: its error is above")
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def order(node: tw.Node) -> None:
    """Publish orders; one in fifty is of an article that has no price."""
    random, out = Random(7), await node.stream("orders")
    articles = [*ARTICLES] * 16 + [MISSING]
    for number in itertools.count():
        article, customer = random.choice(articles), f"customer-{random.randrange(40)}"
        await out.publish("orders.created", Order(number, customer, article, random.randint(1, 9)))
        await asyncio.sleep(1 / ORDERS_PER_S)


async def rebuild(node: tw.Node) -> None:
    """Rebuild what each customer owes, again and again."""
    books = node.client("books")
    while True:
        run = await books.rebuild.start(key="all")
        await run.result()
        await asyncio.sleep(REBUILD_EVERY_S)


async def kill(programs: AsyncExitStack, billing: list[Process], url: str) -> None:
    """Kill the oldest worker of the orders, and start another one."""
    while True:
        await asyncio.sleep(KILL_EVERY_S)
        billing.pop(0).send_signal(signal.SIGKILL)
        billing.append(await programs.enter_async_context(program(ORDERS / "worker.py", url, "billing")))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--port", type=int, default=8420, help="where the console is (default: %(default)s; 0: any)")
    parser.add_argument("--seconds", type=float, help="end after this time")
    return parser.parse_args()


if __name__ == "__main__":
    given = parse()
    tw.run(main(given.port, given.seconds))
