"""Newest spans of a process, for the console, bounded in number and bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from time import perf_counter_ns, time_ns
from typing import Any

TEXT_MAX = 200
"""Most characters of the name and of the error of a stored span."""
ANSWER_SPANS_MAX = 500
"""Most spans of one trace in a reply: the first ones."""


class StoredSpan:
    """A stored span. Its texts have at most ``TEXT_MAX`` characters, and it has at most 2 KiB."""

    __slots__ = (
        "_began_ns",
        "duration_us",
        "error",
        "instance",
        "kind",
        "node",
        "parent_id",
        "span_id",
        "start_us",
        "title",
        "trace_id",
    )

    def __init__(
        self,
        trace_id: str,
        span_id: str,
        parent_id: str,
        title: str,
        kind: str,
        attributes: Mapping[str, str],
        node: str,
    ) -> None:
        self.trace_id, self.span_id, self.parent_id = trace_id, span_id, parent_id
        self.title, self.kind, self.node = title[:TEXT_MAX], kind, node
        self.instance = attributes.get("tidewire.service.instance", "")
        self.start_us, self._began_ns = time_ns() // 1_000, perf_counter_ns()
        self.duration_us: int | None = None
        self.error: str | None = None

    def end(self, error: BaseException | None) -> None:
        """Record the duration and the error. A reader that leaves a stream is no error."""
        self.duration_us = (perf_counter_ns() - self._began_ns) // 1_000
        if error is not None and not isinstance(error, GeneratorExit):
            self.error = f"{type(error).__name__}: {error}"[:TEXT_MAX]

    def row(self, node: str) -> dict[str, Any]:
        """Return its values for the console; ``node`` is the default for a span without a node."""
        is_call = self.kind in ("client", "server")
        service, _, method = self.title.rpartition("/") if is_call else ("", "", "")
        return {
            "id": self.span_id,
            "parent": self.parent_id,
            "name": self.title,
            "kind": self.kind,
            "service": service,
            "method": method,
            "node": self.node or node,
            "instance": self.instance,
            "start_us": self.start_us,
            "duration_us": self.duration_us,
            "error": self.error,
        }


class SpanStore:
    """Ring buffer of the newest spans."""

    def __init__(self, most: int) -> None:
        self._spans: deque[StoredSpan] = deque(maxlen=most)

    @property
    def most(self) -> int:
        """Most spans in the store."""
        return self._spans.maxlen or 0

    def add(self, span: StoredSpan) -> None:
        """Store a new span."""
        self._spans.append(span)

    def find(self, trace_id: str) -> list[StoredSpan]:
        """Return the stored spans of a trace, in order of their start."""
        return [span for span in list(self._spans) if span.trace_id == trace_id]

    def grow(self, most: int) -> None:
        """Raise the limit to at least this number of spans."""
        if most > self.most:
            self._spans = deque(self._spans, maxlen=most)
