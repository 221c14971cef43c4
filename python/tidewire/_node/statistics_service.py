"""Statistics service of a node: its options, and the light part that is always loaded."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidewire._node import live_work
from tidewire.errors import ConfigError, InvalidArgument, TidewireError

if TYPE_CHECKING:
    from tidewire.node import Node
    from tidewire.top.service import StatisticsService

VARIABLE = "TIDEWIRE_INSPECT"
SPANS_VARIABLE = "TIDEWIRE_SPANS"
SPANS_MAX = 100_000
"""Most spans of a process that are stored: up to 200 MB."""
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")
_FAILURES_MAX, _TEXT_MAX, _WORKERS_MAX = 5, 2_000, 64
"""Most failed runs, characters of a traceback, and workers of each campaign."""
_CAMPAIGN = ["name", "condition", "reason", "function", "seed", "runs", "left", "rate", "seconds_left", "limiting"]
_WORKER = ["id", "name", "host", "process", "state", "runs"]
TRAFFIC = ("received_bytes", "sent_bytes", "credit_bytes")
"""Counters of the link of a node to its hub."""
_meters: object = None


def is_inspected(inspect: object, environment: Mapping[str, str] | None) -> bool:
    """Return True if a node serves its statistics, for ``tidewire top``.

    Raises:
        InvalidArgument: if ``inspect`` is neither a bool nor None.
        ConfigError: if it is None, and the environment variable is no bool.
    """
    if inspect is None:
        return _parse_bool((os.environ if environment is None else environment).get(VARIABLE, "off"))
    if not isinstance(inspect, bool):
        raise InvalidArgument(
            f"inspect: {inspect!r} is not allowed: give True, False, or None for {VARIABLE} of the environment"
        )
    return inspect


def span_limit(spans: object, environment: Mapping[str, str] | None, inspect: bool) -> int:
    """Return the number of spans that a node stores for the console; 0 for none.

    Raises:
        InvalidArgument: if ``spans`` is neither such a number nor None, or ``inspect`` is false.
        ConfigError: if it is None, and the environment variable is no such number.
    """
    if spans is None:
        text = (os.environ if environment is None else environment).get(SPANS_VARIABLE, "0").strip()
        if not text.isdecimal() or int(text) > SPANS_MAX:
            text = f"{SPANS_VARIABLE}: {text!r} is not allowed: use a whole number of at most {SPANS_MAX:,}"
            raise ConfigError(text, problems=[text])
        return int(text) if inspect else 0
    if not isinstance(spans, int) or isinstance(spans, bool) or not 0 <= spans <= SPANS_MAX:
        raise InvalidArgument(f"spans: {spans!r} is not allowed: give 0 to {SPANS_MAX:,}, or None for {SPANS_VARIABLE}")
    if spans and not inspect:
        raise InvalidArgument(f"spans: {spans} needs a node with statistics: give inspect=True, too")
    return spans


def open_service(node: Node) -> StatisticsService | None:
    """Serve the statistics of a node, also at its own socket, and its metrics, if enabled.

    Raises:
        InvalidArgument: if the address of the metrics is not allowed.
        ConfigError: if the address is in use, or there is no path for a socket that only this user
            can open.
    """
    if not node._inspect and node._metrics is None:
        return None
    # Loaded on demand: the service needs the modules of links.
    from tidewire.top.service import StatisticsService

    return StatisticsService(node)


def find_meters() -> None:
    """Export the metrics to OpenTelemetry if the program has set a meter provider of its SDK. Nodes
    call this at their creation.
    """
    global _meters
    sdk = sys.modules.get("opentelemetry.sdk.metrics")
    if _meters is None and sdk is not None:
        from opentelemetry.metrics import get_meter_provider

        provider = get_meter_provider()
        if isinstance(provider, sdk.MeterProvider):
            from tidewire._node.meters import Meters

            _meters = Meters(provider)


def agents(node: Node) -> list[dict[str, Any]]:
    """Return the statistics of all live agents of a node, without loading the package."""
    return [] if node._agents is None else [agent.statistics() for agent in node._agents]


def pools() -> list[dict[str, Any]]:
    """Return the statistics of the live pools of this process, sorted by name."""
    rows = [{"capacity": pool._options.capacity, **pool.statistics()} for pool in live_work.pools()]
    return sorted(rows, key=lambda row: str(row["name"]))


def services(node: Node) -> list[dict[str, Any]]:
    """Return the statistics of the services of a node, sorted by name and instance, without loading
    the package.
    """
    module = sys.modules.get("tidewire.services.registry")
    rows = [] if module is None else [served.statistics() for served in module.registry_of(node).served()]
    return sorted(rows, key=lambda row: (row["service"], row["instance"]))


def joins(node: Node) -> list[dict[str, Any]]:
    """Return the federated hubs of a hub, with their traffic."""
    federations = [] if node._connection is None else node._connection.ends.federations
    return [json.loads(federation.statistics()) for federation in federations]


def routes(node: Node) -> list[dict[str, Any]]:
    """Return the estimates of the policy "lowest_latency" of callers in this process."""
    module = sys.modules.get("tidewire.services.registry")
    groups = {} if module is None else dict(module.registry_of(node).groups)
    return [row for name, group in sorted(groups.items()) for row in json.loads(group.balancer.routes(name))]


def campaigns() -> list[dict[str, Any]]:
    """Return counters, rate, workers and the first failed runs of the unfinished campaigns of this
    process, read from their stores.
    """
    rows: list[dict[str, Any]] = []
    for campaign in live_work.campaigns():
        with contextlib.suppress(TidewireError):
            report = campaign.report()
            if not report.ended:
                failed = report.failed + report.quarantined
                errors = list(itertools.islice(campaign.errors(), _FAILURES_MAX)) if failed else []
                row = {
                    **{name: getattr(report, name) for name in _CAMPAIGN},
                    **dict.fromkeys(("done", "handled"), report.done),
                    "failed": failed,
                    "at_work": sum(worker.state == "working" for worker in report.workers),
                    "stages": vars(report.stages) if report.workers else {},
                    "workers": [
                        {name: getattr(worker, name) for name in _WORKER}
                        | {"share": worker.stages.run / (worker.stages.total or 1.0)}
                        for worker in report.workers[:_WORKERS_MAX]
                    ],
                    "failures": [
                        {
                            "run": one.run,
                            "error": f"{one.error}: {one.message}",
                            "traceback": one.traceback[-_TEXT_MAX:],
                        }
                        for one in errors
                    ],
                }
                rows.append(row)
    return rows


def durations(node: Node) -> list[dict[str, Any]]:
    """Return the durations of calls, durable handlers, publishing, and commits of the folder."""
    rows, commits = node._engine.durations(), None if node._folder is None else node._folder.commits()
    if commits is not None:
        buckets, sum_us, calls = commits
        rows.append({"kind": "commit", "name": "", "error": "", "calls": calls, "buckets": buckets, "sum_us": sum_us})
    return rows


def remote(node: Node) -> dict[str, int]:
    """Return the numbers of exported and imported functions and objects of a node."""
    objects = None if node._connection is None else node._connection._objects
    return {"given": 0, "held": 0} if objects is None else objects.statistics()


def links(node: Node) -> dict[str, Any]:
    """Return the current hub of a node, the number of nodes that have joined here, and the number
    of reachable instances of services.

    While it is joined, also the counters of the link, and those of its own hub.
    """
    connection = node._connection
    module = sys.modules.get("tidewire.services.registry")
    is_current = connection is not None and connection.is_current
    found: dict[str, Any] = {
        "hub": None if connection is None else connection.hub_name,
        "nodes": 0 if connection is None else connection.nodes,
        "services": {} if module is None else module.registry_of(node).counts(is_current),
    }
    if connection is not None and connection.is_joined:
        found["dropped"] = connection.link.dropped
        found["laid"] = connection.link.laid
        found["skipped"] = connection.skipped
        found |= dict(zip(TRAFFIC, connection.link.traffic() or (), strict=False))
        if connection.hub is not None:
            found["of_hub"] = connection.hub.statistics()
    return found


def _parse_bool(value: str) -> bool:
    word = value.strip().lower()
    if word not in _ON + _OFF:
        text = f"{VARIABLE}: {value!r} is not allowed: use {', '.join(_ON)} or {', '.join(_OFF)}"
        raise ConfigError(text, problems=[text])
    return word in _ON
