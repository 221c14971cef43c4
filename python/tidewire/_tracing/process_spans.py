"""Spans of a process: their factory, and the lifetime of their store."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidewire import _trace_context
from tidewire._trace_context import outgoing

if TYPE_CHECKING:
    from tidewire._tracing.spans import Spans

_storing: set[int] = set()
"""Ids of the nodes with stored spans."""


def find_spans() -> Spans | None:
    """Return the spans of this process; use OpenTelemetry once the program has set a tracer
    provider. Nodes, pools and campaigns call this at their start.
    """
    spans, trace = _trace_context.spans, sys.modules.get("opentelemetry.trace")
    if (spans is None or not spans.exports) and trace is not None:
        provider = trace.get_tracer_provider()
        if not isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
            from tidewire._tracing.open_telemetry import ExportedSpans

            store = None if spans is None else spans.store
            spans = ExportedSpans()
            spans.store = store
    return spans


def fields_for_workers() -> dict[str, str]:
    """Return the headers for worker processes; none without spans."""
    return {} if find_spans() is None else outgoing({})


def spans_of_worker() -> Spans:
    """Return the spans of a worker process whose parent has spans."""
    found = find_spans()
    if found is None and "opentelemetry.trace" in sys.modules:
        from tidewire._tracing.open_telemetry import ExportedSpans

        return ExportedSpans()
    from tidewire._tracing.local import LocalSpans

    return found or LocalSpans()


def store_spans(node: object, limit: int) -> Callable[[], object]:
    """Store the newest spans of this process while a node runs, and return the function that ends
    this. The store has the largest size of all nodes.
    """
    from tidewire._tracing.local import LocalSpans
    from tidewire._tracing.span_store import SpanStore

    spans = find_spans() or LocalSpans()
    spans.store = spans.store or SpanStore(limit)
    spans.store.grow(limit)
    _storing.add(id(node))
    return weakref.finalize(node, _end_storing, id(node))


def _end_storing(node: int) -> None:
    spans = _trace_context.spans
    _storing.discard(node)
    if spans is not None and not _storing:
        spans.store = None
        _trace_context.spans = spans if spans.exports else None
