"""The metrics of a process alone, and the durations of calls and events."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import tidewire as tw

PATIENCE_S = 30.0


class Shop(tw.Service):
    def __init__(self) -> None:
        self.shipped = asyncio.Event()

    @tw.method
    async def buy(self, item: str) -> str:
        if item.startswith("no "):
            raise type(f"{item[3:].title()}Error", (Exception,), {})
        return item

    @tw.method
    def count(self, to: int) -> int:
        return to

    @tw.on("orders.*", durable="shipping", start="all")
    async def ship(self, event: tw.Event) -> None:
        self.shipped.set()


async def samples(url: str | None) -> dict[str, float]:
    """Return the values of a scrape by their series, without the label of the node."""
    assert url is not None
    with await asyncio.to_thread(urllib.request.urlopen, url) as response:
        text = re.sub(r'node="\w+",?', "", response.read().decode())
    return {name: float(value) for name, value in re.findall(r"^(\w\S*) (\S+)$", text, re.MULTILINE)}


def calls(side: str, method: str, error: str = "") -> str:
    labels = f'rpc_system_name="tidewire",rpc_method="shop/{method}"' + (f',error_type="{error}"' if error else "")
    return f"rpc_{side}_call_duration_seconds_count{{{labels}}}"


async def test_calls_and_events_of_nodes_without_a_gateway_are_timed(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path, metrics="127.0.0.1:0", name="back") as back:
        await back.stream("orders", subjects=["orders.*"])
        shop = Shop()
        await back.serve(shop)
        hub = back.listen("tide://127.0.0.1:0").url
        async with tw.Node(hub, metrics="127.0.0.1:0", name="front") as front:
            client = front.client(Shop)
            assert [await client.buy("tea") for _ in range(3)] == ["tea"] * 3
            assert await client.count(2) == await back.client(Shop).count(2) == 2
            for letter in "abcdefghijklmnopqrst":
                with pytest.raises(tw.RemoteError):
                    await client.buy(f"no {letter}x")
            await (await front.stream("orders")).publish("orders.tea", 1)
            await asyncio.wait_for(shop.shipped.wait(), PATIENCE_S)
            served, called = await samples(back.metrics_url), await samples(front.metrics_url)
        assert front.metrics_url is None
    assert (served[calls("server", "buy")], called[calls("client", "buy")]) == (3, 3)
    assert (served[calls("server", "count")], served[calls("client", "count")]) == (2, 1)
    assert served[calls("server", "buy", "AxError")] == 1
    assert (served[calls("server", "buy", "_OTHER")], called[calls("client", "buy", "RemoteError")]) == (5, 20)
    bucket = calls("server", "buy").replace("_count{", "_bucket{").replace("}", ',le="+Inf"}')
    assert served[bucket] == 3
    assert 0 < served[calls("server", "buy").replace("_count", "_sum")] < PATIENCE_S
    event = (
        '{messaging_system="tidewire",messaging_operation_name="process",messaging_destination_name="orders",'
        'messaging_consumer_group_name="shipping"}'
    )
    assert served[f"messaging_process_duration_seconds_count{event}"] == 1
    assert served[f"messaging_client_consumed_messages_total{event}"] == 1
    assert not [name for name in served if "hub" in name or "http" in name]


async def test_a_process_alone_gives_its_metrics_and_nothing_else() -> None:
    async with tw.Node(metrics="http://localhost:0") as node:
        assert node.metrics_url is not None
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await samples(node.metrics_url.replace("/metrics", "/openapi.json"))
        place = node.metrics_url.removesuffix("/metrics").removeprefix("http://")
        with pytest.raises(tw.ConfigError, match=rf"metrics: can't listen at http://{place}: .* choose another port"):
            tw.Node(metrics=place).start()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os._exit(len(os.read(reading, 1)))
    # The child of the fork is alive, and does not hold the port.
    async with tw.Node(metrics=place) as node:
        assert "tidewire_dispatcher_starved" in "".join(await samples(node.metrics_url))
    os.close(writing)
    assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)


@pytest.mark.parametrize(
    ("place", "fix"),
    [("nowhere", "the port is missing"), ("127.0.0.1:99999", "give a port"), ("", "give text"), (9464, "give text")],
)
def test_a_wrong_place_of_metrics_is_named(place: str, fix: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=f"metrics: .*{place}.* is not allowed: .*{fix}"):
        tw.Node(metrics=place).start()


PUSHED = """
import asyncio, json, urllib.request, tidewire as tw
from opentelemetry import metrics
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader

def served(data):
    [scope] = json.loads(data.to_json())["resource_metrics"][0]["scope_metrics"]
    [metric] = [metric for metric in scope["metrics"] if metric["name"] == "rpc.server.call.duration"]
    points = metric["data"]["data_points"]
    return sum(point["count"] for point in points), sum(point["sum"] for point in points)

def scraped(url):
    with urllib.request.urlopen(url) as response:
        return response.read().decode()

async def main():
    reader = InMemoryMetricReader()
    deltas = InMemoryMetricReader(preferred_temporality={Histogram: AggregationTemporality.DELTA})
    metrics.set_meter_provider(MeterProvider([reader, deltas]))
    async with tw.Node(name="one") as one, tw.Node(name="two", metrics="127.0.0.1:0") as two:
        for node in (one, two):
            await node.serve({"buy": lambda item: item}, name="shop")
            await node.client("shop").buy("tea")
        since = [served(deltas.get_metrics_data())]
        await two.client("shop").buy("tea")
        # The figures of a node are read at most twice a second.
        while sum(count for count, _ in since) < 3:
            since.append(served(deltas.get_metrics_data()))
        pushed = json.loads(reader.get_metrics_data().to_json())
        text = await asyncio.to_thread(scraped, two.metrics_url)
        print(json.dumps([pushed, [each for each in since if each[0]], text]))
asyncio.run(main())
"""


def test_the_sdk_of_opentelemetry_reads_the_same_figures() -> None:
    ran = subprocess.run([sys.executable, "-c", PUSHED], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    pushed, since, text = json.loads(ran.stdout)
    assert [count for count, _ in since] == [2, 1]
    [scope] = pushed["resource_metrics"][0]["scope_metrics"]
    read = {metric["name"]: metric for metric in scope["metrics"]}
    assert not any(name.endswith((".bucket", ".sum", ".count")) for name in read)
    duration = read["rpc.server.call.duration"]
    assert (duration["unit"], duration["data"]["aggregation_temporality"]) == ("s", 2)
    labels = {"rpc.system.name": "tidewire", "rpc.method": "shop/buy"}
    points = {point["attributes"].pop("node"): point for point in duration["data"]["data_points"]}
    assert {name: (point["attributes"], point["count"]) for name, point in points.items()} == {
        "one": (labels, 1),
        "two": (labels, 2),
    }
    assert sum(took_s for _, took_s in since) == pytest.approx(sum(point["sum"] for point in points.values()))
    # The buckets and the sum are those of a scrape.
    series = re.compile(r'rpc_server_call_duration_seconds_(?:bucket\{.*le="(.*)"|sum\{.*)\} (.*)')
    buckets = {end or "sum": float(value) for end, value in series.findall(text)}
    two = points["two"]
    assert [float(end) for end in buckets if end not in ("sum", "+Inf")] == two["explicit_bounds"]
    below = list(itertools.accumulate(two["bucket_counts"]))
    assert ([*buckets.values()][:15], buckets["sum"]) == (below, pytest.approx(two["sum"]))
    assert 0 < two["sum"] < PATIENCE_S
    assert read["rpc.client.call.duration"]["data"]["data_points"]
    assert {point["value"] for point in read["tidewire.dispatcher.starved"]["data"]["data_points"]} == {0}
