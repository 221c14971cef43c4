"""The tables of docs/reference name what the code reads and serves, and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import tidewire as tw

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs/reference"


def first_cells(page: str, heading: str) -> list[str]:
    """Return the code spans in the first cells of the table below a heading."""
    section = (REFERENCE / page).read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_each_variable_that_the_code_reads_is_in_the_table() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "python/tidewire").rglob("*.py")))
    read = set(re.findall(r'"(TIDEWIRE_[A-Z]+)"', code))
    environment = (ROOT / "crates/tidewire-config/src/environment.rs").read_text(encoding="utf-8")
    [accepted] = re.findall(r"const OTHERS: \[&str; \d+\] = \[(.*?)\];", environment)
    read |= {f"TIDEWIRE_{name.upper()}" for name in re.findall(r'"(\w+)"', accepted)}
    assert sorted(first_cells("environment.md", "Places, secrets and switches")) == sorted(read)


def test_each_key_of_the_configuration_is_a_variable_that_a_node_takes() -> None:
    limits = tomllib.loads((ROOT / "spec/limits.toml").read_text(encoding="utf-8"))["limit"]
    prefixes = {"config": "", "dispatcher": "DISPATCHERS__NAME__"}
    prefixes |= {table: f"{table.upper()}__" for table in ("broker", "links", "services")}
    defaults = {
        f"TIDEWIRE_{prefixes[place]}{limit['name'].upper()}": str(limit["default"])
        for limit in limits
        for place in limit["set_by"]
        if place in prefixes
    }
    share = "TIDEWIRE_DISPATCHERS__NAME__SHARE"
    assert sorted(first_cells("environment.md", "Configuration")) == sorted([*defaults, share])
    for environment in (defaults, {share: "default"}):
        with tw.Node(config=tw.Config(environment=environment)):
            pass
    with pytest.raises(tw.ConfigError, match=r"TIDEWIRE_LINKS__LINK_FRAME_BYTE: .* did you mean TIDEWIRE_LINKS__"):
        tw.Node(config=tw.Config(environment={"TIDEWIRE_LINKS__LINK_FRAME_BYTE": "1"}))


class Shop(tw.Service):
    def __init__(self) -> None:
        self.shipped = asyncio.Event()

    @tw.method
    async def buy(self, item: str) -> str:
        if item == "nothing":
            fail(item)
        return item

    @tw.on("orders.>", durable="shipping")
    async def ship(self, event: tw.Event) -> None:
        self.shipped.set()


def fail(item: str) -> None:
    raise ValueError(f"{item} is sold out")


def pack(item: str) -> str:
    return item


async def read(url: str, accept: str = "*/*") -> str:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with await asyncio.to_thread(urllib.request.urlopen, request) as response:
        return str(response.read().decode())


async def test_each_series_of_metrics_is_in_the_table(tmp_path: Path) -> None:
    async with tw.Node(name="paris") as paris, tw.Node(data=tmp_path, inspect=True, name="front") as hub:
        url = hub.listen("http://127.0.0.1:0").url + "/metrics"
        await hub.join(paris.listen("tide://127.0.0.1:0").url, import_=["paris:billing"])
        orders = await hub.stream("orders", subjects=["orders.>"])
        shop = Shop()
        await hub.serve(shop)
        with pytest.raises(ValueError, match="sold out"):
            await hub.client(Shop).buy("nothing")
        assert await hub.client(Shop).buy("tea") == "tea"
        with pytest.raises(ValueError, match="sold out"):
            await hub.spawn(fail).ask("tea")
        packing = hub.pool(pack, name="pack", kind="thread", workers=2)
        assert await asyncio.wrap_future(packing.submit("tea")) == "tea"
        consumer = await orders.consumer("billing", start="all")
        for number in range(3):
            await orders.publish("orders.tea", number)
        await (await anext(consumer)).ack()
        await consumer.flush()
        await asyncio.wait_for(shop.shipped.wait(), 30)
        store = f"sqlite:///{tmp_path}.db"
        await tw.campaign("builtins:repr", runs=2, name="walk", store=store).run_async(workers=1)
        longer = tw.campaign("builtins:repr", runs=3, name="walk", store=store)
        requests = "http_server_request_duration_seconds"
        labels = 'http_request_method="GET",url_scheme="http",http_route="/",http_response_status_code="404"'
        with pytest.raises(urllib.error.HTTPError) as unknown:
            await read(f"{url}?node=back")
        assert 'no node "back" allows inspection (inspect=True): 1 do: "front"' in json.load(unknown.value)["detail"]
        with pytest.raises(urllib.error.HTTPError, match="400"):
            await read(f"{url}?nodes=front")
        text, one = await read(url), await read(f"{url}?node=front")
        longer.cancel()
        parsed = await read(url, "application/openmetrics-text; version=1.0.0")
    assert "# TYPE tidewire_hub_calls counter\ntidewire_hub_calls_total " in parsed
    assert parsed.endswith("\n# EOF\n")
    assert f"{requests}_count{{{labels}}} 1" in text.splitlines()
    assert f'{requests}_bucket{{{labels},le="+Inf"}} 1' in text.splitlines()
    series = re.findall(r'^(\w+\{node="front".*) ', text, re.MULTILINE)
    assert series == re.findall(r"^(\w+\S*) ", one, re.MULTILINE)
    served = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)) == sorted(served)
    of_shop, of_pool, of_billing = (
        '{node="front",service="shop"}',
        '{node="front",pool="pack"}',
        '{stream="orders",consumer="billing"}',
    )
    for sample in (
        'tidewire_campaign_left{node="front",campaign="walk"} 1',
        f"tidewire_service_in_flight{of_shop} 0",
        f"tidewire_pool_tasks_total{of_pool} 1",
        'tidewire_pool_workers{node="front",pool="pack",state="busy"} 0',
        'tidewire_stream_stored_total{stream="orders"} 3',
        f"tidewire_consumer_lag{of_billing} 2",
        'tidewire_join_up{node="front",hub="paris"} 1',
        'tidewire_metrics_missing{part="streams"} 0',
        'tidewire_metrics_missing{part="nodes"} 0',
        "tidewire_nodes_silent 0",
    ):
        assert sample in text.splitlines(), (sample, text)
