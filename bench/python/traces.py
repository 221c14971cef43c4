"""Measures the cost of spans: calls of 256 B between two nodes of a hub, without OpenTelemetry,
with a sampler of 1 %, and with all spans, in turns. Needs opentelemetry-sdk.

Usage: python bench/python/traces.py [--rounds N]

Spans go to an exporter that drops them. The peers of the project make no spans of their own: the
first mode is the one to compare with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import tidewire as tw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tidewire_bench.machine import machine, versions

MODES = {"no provider": None, "1 % of spans": 0.01, "all spans": 1.0}
CALLS, AT_ONCE, PAYLOAD = 2_000, 100, bytes(256)


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


async def measure() -> dict[str, float]:
    """Return the calls per second of each workload."""
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="server") as server, tw.Node(url, name="caller") as caller:
            await server.serve(Echo())
            echo = caller.client(Echo).echo
            for _ in range(AT_ONCE):
                await echo(PAYLOAD)
            began = perf_counter()
            for _ in range(CALLS):
                await echo(PAYLOAD)
            middle = perf_counter()
            for _ in range(CALLS // AT_ONCE * 5):
                await asyncio.gather(*(echo(PAYLOAD) for _ in range(AT_ONCE)))
            ended = perf_counter()
    return {"one after another": CALLS / (middle - began), "100 at once": CALLS * 5 / (ended - middle)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each mode, in turns")
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.mode is not None:
        share = MODES[given.mode]
        if share is not None:
            set_provider(share)
        print(json.dumps(asyncio.run(measure())))
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
        print(f"{workload:18} {mode:13} {middle:9,.0f} calls/s  ({min(rates):,.0f} to {max(rates):,.0f})")


if __name__ == "__main__":
    main()
