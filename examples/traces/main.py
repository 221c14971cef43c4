"""One order, from HTTP through services, events, a command and a callback, as one tree of spans.

Run it with `python examples/traces/main.py`. With `--nats` the order is stored on a server of NATS,
too, with `--page` a TypeScript client is told of it, and with `--browser` a page in Chromium, whose
spans are in the tree. With `--till` a node of another program, for example in Rust, takes the
money. `--json` prints the tree for programs; with `--no-spans` it prints the trace context that
each handler had, without OpenTelemetry.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from shutil import which
from typing import Any

import tidewire as tw

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CLIENT = ROOT / "js/packages/client/dist/index.js"
BROWSER = ROOT / "js/packages/client/test/programs/traced_page.mjs"
PAGE = f"""
import {{ connect }} from "{CLIENT}";
const [url, traceparent] = process.argv.slice(1);
const node = await connect(url);
const orders = node.client("orders").with({{ headers: {{ traceparent }} }});
await orders.watch(async (item) => node.client("stock").take(item));
console.log("it watches");
"""
seen: dict[str, Any] = {}
"""The parent that each handler, task and run had."""


def exporter() -> Any:
    """Set up OpenTelemetry, also in worker processes, and return the place of all spans."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exported = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    trace.set_tracer_provider(provider)
    return exported


exported = None if "--no-spans" in sys.argv else exporter()


def wrap(item: str) -> list[str]:
    """Return the span of a task and its parent, in a worker of a pool."""
    from opentelemetry import trace

    span: Any = trace.get_current_span()
    return [span.name, f"{span.parent.span_id:x}"]


def year(run: tw.Run) -> str:
    """Return the span that a run belongs to, in a worker of a campaign."""
    from opentelemetry import trace

    return f"{trace.get_current_span().get_span_context().span_id:x}"


def pack(item: str) -> str:
    """Handle a message of an agent."""
    if item == "nothing":
        raise KeyError(item)
    return item


class Stock(tw.Service):
    @tw.method
    def take(self, item: str) -> int:
        seen["take"] = tw.context().headers.get("traceparent")
        return 1

    @tw.method
    async def parts(self, item: str) -> AsyncIterator[int]:
        seen["baggage"] = tw.context().headers.get("baggage")
        yield 1
        yield 2

    @tw.method
    async def fail(self) -> None:
        raise KeyError("nothing is left")


class Archive(tw.Service):
    """Stores orders on NATS."""

    def __init__(self, stream: tw.Stream) -> None:
        self.stream, self.stored = stream, asyncio.Event()

    @tw.on("archive.>", durable="store")
    async def store(self, item: str) -> None:
        self.stored.set()


class Orders(tw.Service):
    def __init__(self, node: tw.Node, stream: tw.Stream, has_till: bool) -> None:
        self.node, self.stream, self.has_till = node, stream, has_till
        self.shipped = asyncio.Event()
        self.archive: Archive | None = None
        self.notify: Any = None

    @tw.method
    async def watch(self, notify: Any) -> None:
        self.notify = notify

    @tw.method
    async def order(self, item: str) -> int:
        stock = self.node.client("stock")
        with suppress(KeyError):
            await stock.fail()
        count = sum([part async for part in stock.parts(item)])
        # The node of Rust takes the item, within this call.
        count += await (self.node.client("till").charge(item) if self.has_till else stock.take(item))
        await self.stream.publish("orders.new", item)
        self.node.publish("news.order", item)
        return count

    @tw.command
    async def bill(self, item: str) -> str | None:
        return tw.context().headers.get("traceparent")

    @tw.on("orders.>", durable="ship")
    async def ship(self, item: str, event: tw.Event) -> None:
        seen["event"] = event.headers.get("traceparent")
        await self.node.client("stock").take(item)
        bill = await self.node.client("orders").bill.start(item)
        seen["bill"] = await bill.result()
        if exported is not None:
            await self.plan(item)
        if self.archive is not None:
            await self.archive.stream.publish("archive.new", item)
            await self.archive.stored.wait()
        if self.notify is not None:
            assert await self.notify(item) == 1
        self.shipped.set()

    async def plan(self, item: str) -> None:
        """Have agents, pools and a campaign work for the order."""
        desk = self.node.agents.find("desk")
        assert await desk.request(item, to="packer") == item
        await asyncio.gather(desk.request("nothing", to="packer"), return_exceptions=True)
        for kind in ("thread", "process"):
            async with tw.Pool(wrap, 1, kind=kind) as pool:
                seen[kind] = [await pool.submit(item), *[wrapped async for wrapped in pool.map([item, item])]]
        with tempfile.TemporaryDirectory() as folder:
            campaign = tw.campaign(year, runs=2, store=f"{folder}/year.db", name="year")
            await campaign.run_async(1, progress=False)
            seen["runs"] = [["run", row.value] for row in campaign.results()]

    @tw.on("news.>")
    def note(self, item: str) -> None:
        seen["news"] = tw.context().headers.get("traceparent")


def post(url: str) -> int:
    """Order as an HTTP client that has a trace already."""
    headers = {"traceparent": PARENT, "baggage": "shop=north", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/services/orders/order", b'["tea"]', headers)
    return int(json.load(urllib.request.urlopen(request, timeout=10)))


async def sell(options: argparse.Namespace) -> None:
    """Make one order, and wait for all that it leads to."""
    async with AsyncExitStack() as ends:
        data = ends.enter_context(tempfile.TemporaryDirectory())
        hub = await ends.enter_async_context(tw.Node(name="hub", data=data))
        url, http, web = (hub.listen(f"{scheme}://127.0.0.1:0").url for scheme in ("tide", "http", "ws"))
        stock, shop = [await ends.enter_async_context(tw.Node(url, name=name)) for name in ("stock", "shop")]
        await stock.serve(Stock())
        orders = Orders(shop, await shop.stream("orders", subjects=["orders.>"]), options.till)
        await shop.serve(orders, visibility="public")
        for name in ("desk", "packer"):
            shop.agent(pack, id=name)
        if options.nats:
            import servers

            try:
                server = ends.enter_context(servers.started("nats"))
            except servers.Missing as missing:
                print(f"nats-server: {missing}")
                raise SystemExit(1) from None
            bank = tw.Node(server["TIDEWIRE_TEST_NATS"], name="bank")
            stream = await (await ends.enter_async_context(bank)).stream("archive", subjects=["archive.>"])
            orders.archive = Archive(stream)
            await bank.serve(orders.archive)
        page: Any = None
        if options.page or options.browser:
            program = [str(BROWSER)] if options.browser else ["--input-type=module", "-e", PAGE]
            command = [str(which("node")), *program, web, PARENT]
            page = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            ends.push_async_callback(page.wait)
            # The program of the page ends its browser at the end of its input.
            ends.callback(page.stdin.close if options.browser else page.kill)
            assert await page.stdout.readline() == b"it watches\n"
        if options.till:
            # The other program serves the till, and writes a line.
            print(url, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
        assert await asyncio.to_thread(post, http) == 4
        await orders.shipped.wait()
        await shop.client("stock").with_(headers={"traceparent": PARENT}).take("cup")
        if options.browser:
            page.stdin.close()
            seen["page"] = json.loads(await page.stdout.readline())


def report(spans: Any) -> dict[str, Any]:
    """Return the spans as pairs of a parent and a child, their errors, links and traces."""
    kinds = {f"{s.context.span_id:x}": f"{s.kind.name.lower()} {s.name}" for s in spans}
    pages = {f"{int(row[0], 16):x}": row[1:] for row in seen.get("page", [])}
    kinds |= {span: f"page {kind} {name}" for span, (_, kind, name, _) in pages.items()}
    parents = [f"{s.parent.span_id:x}" for s in spans] + [f"{int(row[0] or '0', 16):x}" for row in pages.values()]
    return {
        "tree": sorted(zip((kinds.get(parent, parent) for parent in parents), kinds.values(), strict=True)),
        "errors": {
            f"{s.kind.name.lower()} {s.name}": s.attributes["error.type"] for s in spans if "error.type" in s.attributes
        },
        "links": [f"{link.context.span_id:x}" == f"{s.parent.span_id:x}" for s in spans for link in s.links],
        "tasks": {
            name: [[title, kinds[parent]] for title, parent in seen[name]] for name in ("thread", "process", "runs")
        },
        "baggage": seen["baggage"],
        "traces": sorted({*(f"{s.context.trace_id:x}" for s in spans), *(trace for *_, trace in pages.values())}),
    }


def show(spans: Any, parent: int, depth: int = 0) -> None:
    """Print a tree of spans."""
    for span in sorted(spans, key=lambda span: span.start_time):
        if span.parent.span_id == parent:
            print(f"{'  ' * depth}{span.kind.name.lower()} {span.name}")
            show(spans, span.context.span_id, depth + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--nats", "--page", "--browser", "--till", "--json", "--no-spans"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args()
    asyncio.run(sell(options))
    if exported is None:
        modules = [name for name in sys.modules if name.startswith("opentelemetry")]
        print(json.dumps({**seen, "modules": modules}))
    elif options.json:
        print(json.dumps(report(exported.get_finished_spans())), flush=True)
    else:
        show(exported.get_finished_spans(), int(PARENT.split("-")[2], 16))


if __name__ == "__main__":
    main()
