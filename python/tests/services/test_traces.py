"""Trace context and spans: one tree from a request over HTTP to the handler of a durable event."""

from __future__ import annotations

import json

import pytest
from program_support import Ended, program

_PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

_SPANS = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exported = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exported))
trace.set_tracer_provider(provider)

def report():
    spans = exported.get_finished_spans()
    kinds = {s.context.span_id: f"{s.kind.name.lower()} {s.name}" for s in spans}
    parents = [kinds.get(s.parent.span_id, f"{s.parent.span_id:x}") for s in spans]
    errors = {kinds[s.context.span_id]: s.attributes["error.type"] for s in spans if "error.type" in s.attributes}
    links = [f"{link.context.span_id:x}" == f"{s.parent.span_id:x}" for s in spans for link in s.links]
    traces = sorted({f"{s.context.trace_id:x}" for s in spans})
    return {"tree": sorted(zip(parents, kinds.values())), "errors": errors, "links": links, "traces": traces}
"""

_SHOP = """
import json, tempfile, urllib.request
from collections.abc import AsyncIterator

seen = {}

class Stock(tw.Service):
    @tw.method
    def take(self, item: str) -> int:
        seen["take"] = tw.context().headers.get("traceparent")
        return 1

    @tw.method
    async def parts(self, item: str) -> AsyncIterator[int]:
        yield 1
        yield 2

    @tw.method
    async def fail(self) -> None:
        raise KeyError("nothing is left")

class Orders(tw.Service):
    def __init__(self, node, stream):
        self.node, self.stream, self.shipped = node, stream, asyncio.Event()

    @tw.method
    async def order(self, item: str) -> int:
        stock = self.node.client("stock")
        try:
            await stock.fail()
        except KeyError:
            pass
        count = sum([part async for part in stock.parts(item)]) + await stock.take(item)
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
        self.shipped.set()

    @tw.on("news.>")
    def note(self, item: str) -> None:
        seen["news"] = tw.context().headers.get("traceparent")

def post(url, parent):
    request = urllib.request.Request(f"{url}/services/orders/order", b'["tea"]', {"traceparent": parent})
    request.add_header("content-type", "application/json")
    return json.load(urllib.request.urlopen(request, timeout=10))

async def main(parent):
    with tempfile.TemporaryDirectory() as data:
        async with tw.Node(name="hub", data=data) as hub:
            url, http = hub.listen("tide://127.0.0.1:0").url, hub.listen("http://127.0.0.1:0").url
            async with tw.Node(url, name="stock") as stock, tw.Node(url, name="shop") as shop:
                await stock.serve(Stock())
                orders = Orders(shop, await shop.stream("orders", subjects=["orders.>"]))
                await shop.serve(orders, visibility="public")
                assert await asyncio.to_thread(post, http, parent) == 4
                await orders.shipped.wait()
                await shop.client("stock").with_(headers={"traceparent": parent}).take("cup")
"""


def _run(code: str) -> dict[str, object]:
    ended: Ended = program(f"{code}\nrun(main({_PARENT!r}))\nprint(json.dumps(report()))\nos._exit(0)")
    assert ended.code == 0, ended.err
    found: dict[str, object] = json.loads(ended.out.splitlines()[-1])
    return found


@pytest.mark.promise("P13.97")
def test_a_request_over_http_and_all_that_it_leads_to_are_one_tree_of_spans() -> None:
    pytest.importorskip("opentelemetry.sdk")
    order, fail, parts, take = (
        f"server {name}" for name in ("orders/order", "stock/fail", "stock/parts", "stock/take")
    )
    calls = [(one.replace("server", "client"), one) for one in (fail, parts, take)]
    sent = [(f"publish {name}", f"process {name}") for name in ("news.order", "orders.new")]
    tree = [
        ("f067aa0ba902b7", order),
        ("f067aa0ba902b7", "client stock/take"),
        calls[2],
        *calls,
        *((order, client) for client, _ in calls),
    ]
    tree += [(f"producer {one}", f"consumer {other}") for one, other in sent]
    tree += [(order, f"producer {one}") for one, _ in sent]
    bill = ("producer publish orders/bill", "consumer process orders/bill")
    tree += [bill, ("consumer process orders.new", bill[0])]
    tree += [("consumer process orders.new", "client stock/take"), ("client stock/take", take)]
    found = _run(_SPANS + _SHOP)
    assert found["tree"] == sorted([*pair] for pair in tree)
    assert found["errors"] == dict.fromkeys(calls[0], "KeyError")
    assert found["links"] == [True, True, True]
    assert found["traces"] == [_PARENT.split("-")[1]]


@pytest.mark.promise("P13.97")
def test_the_trace_context_travels_without_opentelemetry_and_nothing_of_it_is_imported() -> None:
    modules = "[name for name in sys.modules if name.startswith('opentelemetry')]"
    found = _run(_SHOP + f"\ndef report():\n    return {{**seen, 'modules': {modules}}}\n")
    assert found == {"take": _PARENT, "event": _PARENT, "bill": _PARENT, "news": _PARENT, "modules": []}
