"""Check of the boards and alerts of deploy/, with a Prometheus that scrapes a hub.

A board is a file of deploy/grafana. Each query of a board, and each expression of an alert, must
return data. The hub has a worker, calls, errors and a join, so that each series has a value.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import servers
import yaml

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
ALERTS = DEPLOY / "prometheus/alerts.yml"
LIMIT_S = 20.0
"""Longest wait until each query has data: some scrapes."""
VARIABLES = {"$instance": ".*", "$__rate_interval": "1m"}
WORKER = """
import logging, sys, tidewire as tw
logging.getLogger("tidewire").setLevel("CRITICAL")  # its errors are wanted
class Shop(tw.Service, visibility="public"):
    @tw.method
    async def buy(self, item: str) -> str:
        if item == "nothing":
            raise RuntimeError("sold out")
        if item == "tea":
            await orders.publish("orders.tea", 1)
            await node.client(Shop).buy("bag")
        return item
    @tw.on("orders.>", durable="shipping")
    async def ship(self, event: tw.Event) -> None: ...
def pack(item: str) -> str:
    return item
async def main():
    global node, orders
    async with tw.Node(sys.argv[1], inspect=True) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        await node.serve(Shop())
        await node.pool(pack, name="pack", kind="thread").submit("tea")
        await orders.consumer("billing", start="all")
        node.spawn(lambda number: 1 / number).tell(0)
        print("serves", flush=True)
        await tw.campaign("builtins:repr", runs=100_000_000, store=sys.argv[2]).run_async(workers=1)
tw.run(main())
"""


def check_monitoring(tidewire: str) -> None:
    """Check the alerts with promtool, then the queries of boards and alerts with Prometheus."""
    try:
        with servers.started("prometheus") as addresses:
            for command in (("check", "rules", ALERTS), ("test", "rules", ALERTS.with_name("alerts.test.yml"))):
                ran = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
                assert ran.returncode == 0, f"promtool {command[0]} rules: {ran.stdout}{ran.stderr}"
            targets = Path(addresses["TIDEWIRE_TEST_SERVERS"]) / "prometheus/targets.json"
            with running_hub(tidewire) as http:
                written = targets.with_suffix(".new")
                written.write_text(json.dumps([{"targets": [urllib.parse.urlsplit(http).netloc]}]))
                written.replace(targets)
                check_queries(addresses["TIDEWIRE_TEST_PROMETHEUS"], http)
    except servers.Missing as problem:
        print(f"monitoring: left out, {problem}")


def check_queries(prometheus: str, http: str) -> None:
    boards = {path.name: queries(json.loads(path.read_text())) for path in sorted(DEPLOY.glob("grafana/*.json"))}
    alerts = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    wanted = {(name, query) for name, found in boards.items() for query in found}
    wanted |= {(rule["alert"], always(rule["expr"])) for rule in alerts}
    assert all(boards.values()), f"monitoring: a board has no query: {boards}"
    ends_at = time.monotonic() + LIMIT_S
    while True:
        buy(http)
        wanted = {(where, query) for where, query in wanted if not has_data(prometheus, where, query)}
        if not wanted:
            break
        assert time.monotonic() < ends_at, f"monitoring: no data after {LIMIT_S:.0f} s: {sorted(wanted)}"
    loaded = [rule for group in ask(prometheus, "rules")["groups"] for rule in group["rules"]]
    broken = {rule["name"]: rule["lastError"] for rule in loaded if rule["health"] == "err"}
    assert len(loaded) == len(alerts) and not broken, f"monitoring: rules of Prometheus: {broken}"
    for name, found in boards.items():
        print(f"monitoring: {name}: {len(found)} queries return data")
    print(f"monitoring: {len(alerts)} alerts pass promtool, and their expressions return data")


def queries(board: dict[str, Any]) -> list[str]:
    """The queries of the panels of a board, with values in the place of its variables."""
    found = []
    for panel in board["panels"]:
        assert panel["title"] and panel["description"] and panel["targets"], f"monitoring: {panel['title']}: incomplete"
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            assert "$" not in query, f"monitoring: {panel['title']}: {query} has an unknown variable"
            found.append(query)
    return found


def always(expression: str) -> str:
    """An alert's expression that returns data also while the alert is silent."""
    changed, count = re.subn(r" (==|<|>) ", r" \1 bool ", expression)
    assert count == 1, f"monitoring: {expression} has {count} comparisons, not one"
    return changed


def has_data(prometheus: str, where: str, query: str) -> bool:
    try:
        return any(sample["value"][1] != "NaN" for sample in ask(prometheus, "query", query=query)["result"])
    except urllib.error.HTTPError as error:
        raise AssertionError(f"monitoring: {where}: {query}: {error.read().decode()}") from None


def ask(prometheus: str, what: str, **arguments: str) -> Any:
    with urllib.request.urlopen(f"{prometheus}/api/v1/{what}?{urllib.parse.urlencode(arguments)}") as response:
        return json.load(response)["data"]


def buy(http: str) -> None:
    """Make a call, which publishes and makes another call, and one that fails with a status 5xx."""
    for item, status in (("tea", 200), ("nothing", 500)):
        body = json.dumps({"item": item}).encode()
        request = urllib.request.Request(f"{http}/services/shop/buy", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                got = response.status
        except urllib.error.HTTPError as error:
            got = error.code
        assert got == status, f"monitoring: the call of {item} has status {got}, not {status}"


@contextlib.contextmanager
def running_hub(tidewire: str) -> Iterator[str]:
    """A hub with a gateway and a worker: the URL of the gateway."""
    python = str(Path(tidewire).with_name("python"))
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory())
        up = [tidewire, "up", "--listen", "tide://127.0.0.1:0", "--http", "127.0.0.1:0", "--json", "--log-level=error"]
        # Nobody is there, so the link to the other hub has a value, too.
        up += ["--data", data, "--join", "tide://127.0.0.1:9", "--as", "site", "--export", "shop"]
        urls = json.loads(first_line(stack, up))["urls"]
        tide = next(url for url in urls if url.startswith("tide"))
        store = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/farm.db"
        assert first_line(stack, [python, "-c", WORKER, tide, store]) == "serves\n", (
            "monitoring: the worker did not start"
        )
        yield next(url for url in urls if url.startswith("http")).rstrip("/")


def first_line(stack: contextlib.ExitStack, command: list[str]) -> str:
    inspected = {**os.environ, "TIDEWIRE_INSPECT": "1"}
    made = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, env=inspected)
    process = stack.enter_context(made)
    stack.callback(process.terminate)
    assert process.stdout is not None
    return process.stdout.readline()
