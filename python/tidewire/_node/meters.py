"""OpenTelemetry instruments of the metrics of a process's nodes. This module is imported only after
the program has set a meter provider.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Lock
from time import monotonic, time_ns
from typing import Any, NamedTuple

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk import metrics as sdk
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
)

from tidewire._binding import __version__, node_metrics, node_series
from tidewire._runtime import live_nodes
from tidewire.top.answer import bounded

_FRESH_S = 0.5
"""Lifetime of a snapshot of the nodes: the SDK reads the instruments one after the other."""

_METER = "tidewire"


class Meters:
    """Instruments of a process, which the SDK reads at a collection. Their meter is "tidewire"."""

    def __init__(self, provider: sdk.MeterProvider) -> None:
        self._lock = Lock()
        self._seen: dict[str, list[Observation]] = {}
        self._until_s = 0.0
        self.histograms: dict[str, str] = {}
        meter = metrics.get_meter(_METER, __version__)
        for name, kind, text in node_series():
            if kind == "histogram":
                self.histograms[name] = text
                continue
            make = meter.create_observable_gauge if kind == "gauge" else meter.create_observable_counter
            make(_named(name), [self._reader(name)], "s" if "_seconds" in name else "1", text)
        for reader in provider._metric_readers if hasattr(provider, "_metric_readers") else _older(provider):
            _HistogramReader(self, reader)

    def _reader(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: self.samples().get(name, [])

    def samples(self) -> dict[str, list[Observation]]:
        """Return the observations of all nodes by series, like ``/metrics``."""
        with self._lock:
            if monotonic() >= self._until_s:
                seen = defaultdict(list)
                for node in list(live_nodes.live):
                    statistics = json.dumps(bounded(node.statistics())).encode()
                    for name, labels, value in node_metrics(node.name, statistics):
                        seen[name].append(Observation(value, {_dotted(key): label for key, label in labels}))
                self._seen, self._until_s = seen, monotonic() + _FRESH_S
            return self._seen


class _Counts(NamedTuple):
    """Histogram of one combination of labels."""

    ends: list[float]
    buckets: list[int]
    sum: float

    def since(self, before: _Counts | None) -> _Counts:
        if before is None:
            return self
        buckets = [now - then for now, then in zip(self.buckets, before.buckets, strict=True)]
        return _Counts(self.ends, buckets, self.sum - before.sum)


_Labels = tuple[tuple[str, Any], ...]


class _HistogramReader:
    """Adds histograms to the metrics of an SDK reader. The SDK has no observable histogram."""

    def __init__(self, meters: Meters, reader: MetricReader) -> None:
        self._meters, self._receive = meters, reader._receive_metrics
        preferred = getattr(reader, "_preferred_temporality", None) or {}
        self._temporality = preferred.get(sdk.Histogram, AggregationTemporality.CUMULATIVE)
        self._since_ns = time_ns()
        self._before: dict[tuple[str, _Labels], _Counts] = {}
        reader._receive_metrics = self._received  # type: ignore[method-assign]

    def _received(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        resources = []
        for resource in metrics_data.resource_metrics:
            scopes = [
                replace(scope, metrics=[*scope.metrics, *self._metrics()]) if scope.scope.name == _METER else scope
                for scope in resource.scope_metrics
            ]
            resources.append(replace(resource, scope_metrics=scopes))
        self._receive(replace(metrics_data, resource_metrics=resources), timeout_millis, **kwargs)

    def _metrics(self) -> list[Metric]:
        samples, now_ns = self._meters.samples(), time_ns()
        before, since_ns = self._before, self._since_ns
        if self._temporality is AggregationTemporality.DELTA:
            self._before, self._since_ns = {}, now_ns
        found = []
        for name, text in self._meters.histograms.items():
            points = []
            for labels, counts in _histograms(name, samples).items():
                if self._temporality is AggregationTemporality.DELTA:
                    self._before[name, labels] = counts
                ends, buckets, total = counts.since(before.get((name, labels)))
                # The shortest and longest durations are unknown.
                extremes: dict[str, Any] = {"min": None, "max": None}
                points.append(
                    HistogramDataPoint(dict(labels), since_ns, now_ns, sum(buckets), total, buckets, ends, **extremes)
                )
            if points:
                found.append(Metric(_named(name), text, "s", Histogram(points, self._temporality)))
        return found


def _histograms(name: str, samples: dict[str, list[Observation]]) -> dict[_Labels, _Counts]:
    """Return the histograms of a series by their labels. In the samples each bucket includes the
    ones below it.
    """
    found: dict[_Labels, _Counts] = {}
    for one in samples.get(f"{name}_bucket", []):
        labels = dict(one.attributes or {})
        end = float(str(labels.pop("le")))
        counts = found.setdefault(tuple(labels.items()), _Counts([], [], 0.0))
        counts.buckets.append(int(one.value) - sum(counts.buckets))
        if end < float("inf"):
            counts.ends.append(end)
    for one in samples.get(f"{name}_sum", []):
        key = tuple((one.attributes or {}).items())
        found[key] = found[key]._replace(sum=one.value)
    return found


def _older(provider: Any) -> Iterable[MetricReader]:
    """Return the readers of a provider of an older SDK."""
    readers: Iterable[MetricReader] = provider._sdk_config.metric_readers
    return readers


def _named(series: str) -> str:
    return _dotted(series.replace("_seconds", "").removesuffix("_total"))


def _dotted(name: str) -> str:
    return name.replace("_", ".")
