"""Trace context and spans: one tree from a request over HTTP to all that it leads to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_SHOP = Path(__file__).parents[3] / "examples/traces/main.py"


def _run(option: str) -> dict[str, object]:
    ended = subprocess.run([sys.executable, _SHOP, option], check=True, timeout=60, stdout=subprocess.PIPE)
    found: dict[str, object] = json.loads(ended.stdout)
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
    ship = "consumer process orders.new"
    message, task = ("producer send packer", "consumer process packer"), "consumer process wrap"
    tree += [(ship, message[0]), message] * 2
    # The spans of tasks in worker processes end there.
    tree += [*[(ship, task)] * 3, (ship, "internal campaign year")]
    found = _run("--json")
    assert found["tree"] == sorted([*pair] for pair in tree)
    assert found["errors"] == {**dict.fromkeys(calls[0], "KeyError"), message[1]: "KeyError"}
    assert found["links"] == [True] * 8
    tasks = [[task.removeprefix("consumer "), ship]] * 3
    assert found["tasks"] == {"thread": tasks, "process": tasks, "runs": [["run", "internal campaign year"]] * 2}
    assert (found["traces"], found["baggage"]) == ([_PARENT.split("-")[1]], "shop=north")


@pytest.mark.promise("P13.97")
def test_the_trace_context_travels_without_opentelemetry_and_nothing_of_it_is_imported() -> None:
    found = _run("--no-spans")
    parents = dict.fromkeys(("take", "event", "bill", "news"), _PARENT)
    assert found == {**parents, "baggage": "shop=north", "modules": []}


_SAMPLED = """
import asyncio, json, sys
import tidewire as tw
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

dropping = sampling.ParentBased(sampling.ALWAYS_OFF)
provider = TracerProvider(sampler=dropping if sys.argv[1] == "dropping" else sampling.ALWAYS_ON)
exporter = InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

def state():
    span, context = trace.get_current_span().get_span_context(), tw.context()
    assert f"{span.trace_id:032x}" == context.trace
    return [context.trace, span.trace_flags & 1, int(context.headers["traceparent"][-2:], 16) & 1]

class Inner(tw.Service):
    @tw.method
    async def state(self) -> list:
        with trace.get_tracer("inner").start_as_current_span("work"):
            return state()

class ShopFront(tw.Service):
    def __init__(self, node):
        self.inner = node.client("inner")

    @tw.method
    async def states(self) -> list:
        return [state(), await self.inner.state()]

async def main():
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="a") as a, tw.Node(url, name="b") as b:
            await a.serve(Inner())
            await b.serve(ShopFront(b), name="outer")
            found = []
            for headers in ({}, {"traceparent": f"00-{'7' * 32}-{'9' * 16}-00"}, {"traceparent": f"00-{'7' * 32}-{'9' * 16}-01"}):
                for _ in range(2):
                    exporter.clear()
                    states = await hub.client("outer").with_(headers=headers).states()
                    found.append([states, sorted(span.name for span in exporter.get_finished_spans())])
            print(json.dumps(found))

asyncio.run(main())
"""


@pytest.mark.promise("P13.97")
def test_a_trace_that_the_sampler_drops_has_no_spans_and_goes_on_as_dropped() -> None:
    pytest.importorskip("opentelemetry.sdk")

    def found(sampler: str) -> list[tuple[list[list[object]], list[str]]]:
        run = [sys.executable, "-c", _SAMPLED, sampler]
        rows = json.loads(subprocess.run(run, check=True, timeout=60, stdout=subprocess.PIPE).stdout)
        return [(states, spans) for states, spans in rows]

    spans = sorted(["outer/states", "inner/state"] * 2 + ["work"])
    dropped = found("dropping")
    for (outer, inner), made in dropped[:4]:
        assert (outer[1:], inner, made) == ([0, 0], outer, [])
    assert [states[0][0] for states, _ in dropped[2:]] == ["7" * 32] * 4
    # Each call without a parent is a trace of its own.
    assert dropped[0] != dropped[1]
    assert dropped[4:] == [([["7" * 32, 1, 1]] * 2, spans)] * 2
    # A sampler that does not follow its parent is asked again.
    assert [made for _, made in found("always")] == [spans] * 6
