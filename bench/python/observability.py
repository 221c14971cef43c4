"""Cost of metrics and spans: calls of 256 B between two nodes of a hub and events of 256 B in its
folder, with nothing on, with metrics, with a sampler of 1 %, and with all spans, in turns. Needs
opentelemetry-sdk.

Usage: python bench/python/observability.py [--rounds N]

Metrics are scraped from all three nodes once per second. Spans go to an exporter that drops them.
The peers of the project have neither: the first mode is the one to compare with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from urllib.request import urlopen

import tidewire as tw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tidewire_bench.machine import machine, versions

MODES = {"off": None, "metrics": None, "1 % of spans": 0.01, "all spans": 1.0}
CALLS, AT_ONCE, PAYLOAD = 2_000, 100, bytes(256)
SCRAPES_S = 1.0


class Echo(tw.Service):
    @tw.method
    async def echo(self, data: bytes) -> bytes:
        return data


def set_provider(share: float) -> None:
    """Sample this share of the traces, and drop their spans at the exporter."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    class Dropped(SpanExporter):
        def export(self, spans: list[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(share)))
    provider.add_span_processor(BatchSpanProcessor(Dropped()))
    trace.set_tracer_provider(provider)


def node(url: str, name: str, metrics: bool) -> tw.Node:
    """Return a node, with metrics or without."""
    return tw.Node(url, name=name, inspect=metrics, metrics="127.0.0.1:0" if metrics else None)


async def scrape(nodes: list[tw.Node]) -> None:
    """Read the metrics of nodes again and again."""
    while True:
        await asyncio.sleep(SCRAPES_S)
        for one in nodes:
            assert one.metrics_url is not None
            await asyncio.to_thread(lambda url: urlopen(url, timeout=10).read(), one.metrics_url)


async def measure(metrics: bool) -> dict[str, float]:
    """Return the calls and events per second of each workload."""
    with tempfile.TemporaryDirectory() as folder:
        async with tw.Node(name="hub", data=folder, inspect=metrics, metrics="127.0.0.1:0" if metrics else None) as hub:
            url = hub.listen("tide://127.0.0.1:0").url
            async with node(url, "server", metrics) as server, node(url, "caller", metrics) as caller:
                scraper = asyncio.ensure_future(scrape([hub, server, caller])) if metrics else None
                await server.serve(Echo())
                echo = caller.client(Echo).echo
                events = await caller.stream("events", subjects=["events.>"])
                rates = {
                    "calls one after another": await rate(lambda: echo(PAYLOAD), 1),
                    "100 calls at once": await rate(lambda: echo(PAYLOAD), AT_ONCE),
                    "events one after another": await rate(lambda: events.publish("events.x", PAYLOAD), 1),
                    "100 events at once": await rate(lambda: events.publish("events.x", PAYLOAD), AT_ONCE),
                }
                if scraper is not None:
                    scraper.cancel()
    return rates


async def rate(begin: Callable[[], Awaitable[object]], at_once: int) -> float:
    """Return how many of these end per second."""
    for _ in range(AT_ONCE):
        await begin()
    rounds = CALLS if at_once == 1 else CALLS * 5 // at_once
    began = perf_counter()
    for _ in range(rounds):
        await (begin() if at_once == 1 else asyncio.gather(*(begin() for _ in range(at_once))))
    return rounds * at_once / (perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each mode, in turns")
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.mode is not None:
        share = MODES[given.mode]
        if share is not None:
            set_provider(share)
        print(json.dumps(asyncio.run(measure(given.mode == "metrics"))))
        return
    print(machine())
    print(versions(None))
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(given.rounds):
        for mode in MODES:
            out = subprocess.run([sys.executable, __file__, "--mode", mode], check=True, capture_output=True).stdout
            for workload, rate in json.loads(out).items():
                found.setdefault((workload, mode), []).append(rate)
    for (workload, mode), rates in sorted(found.items()):
        middle = statistics.median(rates)
        share = middle / statistics.median(found[workload, "off"])
        print(f"{workload:25} {mode:13} {middle:9,.0f}/s  ({min(rates):,.0f} to {max(rates):,.0f})  {share:.2f}")


if __name__ == "__main__":
    main()
