"""The tables of docs/reference name what the code reads and serves, and nothing else."""

from __future__ import annotations

import asyncio
import re
import tomllib
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
    @tw.method
    async def buy(self, item: str) -> str:
        if item == "nothing":
            fail(item)
        return item


def fail(item: str) -> None:
    raise ValueError(f"{item} is sold out")


def pack(item: str) -> str:
    return item


async def test_each_series_of_metrics_is_in_the_table(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path, inspect=True, name="front") as hub:
        url = hub.listen("http://127.0.0.1:0").url + "/metrics"
        await hub.serve(Shop())
        with pytest.raises(ValueError, match="sold out"):
            await hub.client(Shop).buy("nothing")
        assert await hub.client(Shop).buy("tea") == "tea"
        with pytest.raises(ValueError, match="sold out"):
            await hub.spawn(fail).ask("tea")
        packing = hub.pool(pack, name="pack", kind="thread", workers=2)
        assert await asyncio.wrap_future(packing.submit("tea")) == "tea"
        orders = await hub.stream("orders", subjects=["orders.>"])
        consumer = await orders.consumer("billing", start="all")
        for number in range(3):
            await orders.publish("orders.tea", number)
        await (await anext(consumer)).ack()
        await consumer.flush()
        with await asyncio.to_thread(urllib.request.urlopen, url) as response:
            text = response.read().decode()
    served = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)) == sorted(served)
    of_shop, of_pool, of_billing = (
        '{node="front",service="shop"}',
        '{node="front",pool="pack"}',
        '{stream="orders",consumer="billing"}',
    )
    for sample in (
        f"tidewire_service_calls_total{of_shop} 2",
        f"tidewire_service_errors_total{of_shop} 1",
        f"tidewire_pool_tasks_total{of_pool} 1",
        'tidewire_pool_workers{node="front",pool="pack",state="busy"} 0',
        'tidewire_stream_stored_total{stream="orders"} 3',
        f"tidewire_consumer_lag{of_billing} 2",
        'tidewire_metrics_missing{part="streams"} 0',
        'tidewire_metrics_missing{part="nodes"} 0',
        "tidewire_nodes_silent 0",
    ):
        assert sample in text.splitlines(), (sample, text)
