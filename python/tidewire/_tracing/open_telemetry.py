"""Spans of OpenTelemetry. Imported only after the program has set a tracer provider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from tidewire._binding import __version__
from tidewire._trace_context import FIELDS
from tidewire._tracing.span_store import StoredSpan
from tidewire._tracing.spans import SYSTEM, Kind, Spans

if TYPE_CHECKING:
    from tidewire.services.instances.inbound_call import AnyRunning

_PARENT = re.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_DROPS = re.compile(
    r"ParentBased\{.*,remoteParentNotSampled:AlwaysOffSampler,localParentSampled:[^{},]*,localParentNotSampled:AlwaysOffSampler\}"
)
"""Description of a sampler that drops all children of a dropped span."""
_NO_CONTEXT = Context()
_KINDS = {kind.name.lower(): kind for kind in SpanKind}


class _Sender(NonRecordingSpan):
    """The span of ``traceparent``. Its ids are parsed at the first access."""

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent
        self._ids: SpanContext | None = None

    def get_span_context(self) -> SpanContext:
        if self._ids is None:
            trace_id, span_id, flags = (int(digits, 16) for digits in self.traceparent.split("-")[1:])
            self._ids = SpanContext(trace_id, span_id, True, TraceFlags(flags))
        return self._ids


class ExportedSpan(NamedTuple):
    """A span of OpenTelemetry, the context of its parent unless that is the current one, and its
    stored form.
    """

    span: trace.Span
    parent: Context | None
    stored: StoredSpan | None


class ExportedSpans(Spans):
    """Spans of a process with its tracer provider. The tracer is "tidewire"."""

    exports: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._tracer = trace.get_tracer(SYSTEM, __version__)
        sampler = getattr(self._tracer, "sampler", None)
        self._drops = sampler is not None and _DROPS.fullmatch(sampler.get_description()) is not None
        self._format: object = None
        self._is_w3c = False

    def begin(
        self,
        title: str,
        kind: Kind,
        headers: Mapping[str, str],
        attributes: dict[str, str],
        node: str = "",
        *,
        is_received: bool = False,
    ) -> ExportedSpan:
        parent = self._extract(headers) if is_received else self._inherited_context(headers)
        current = trace.get_current_span(parent)
        if self._drops and self.store is None and self._is_dropped(current):
            # A recording span must not be ended here.
            dropped = current if isinstance(current, NonRecordingSpan) else NonRecordingSpan(current.get_span_context())
            return ExportedSpan(dropped, parent, None)
        sender = current.get_span_context()
        links = [Link(sender)] if kind == "consumer" and sender.is_valid else None
        span = self._tracer.start_span(title, parent, _KINDS[kind], attributes, links)
        stored, ids = None, span.get_span_context()
        if self.store is not None and ids.is_valid:
            trace_id, span_id = f"{ids.trace_id:032x}", f"{ids.span_id:016x}"
            parent_id = f"{sender.span_id:016x}" if sender.is_valid else ""
            stored = StoredSpan(trace_id, span_id, parent_id, title, kind, attributes, node)
            self.store.add(stored)
        return ExportedSpan(span, parent, stored)

    def end(self, span: ExportedSpan, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, GeneratorExit):
            span.span.record_exception(error)
            span.span.set_attribute("error.type", type(error).__name__)
            span.span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
        span.span.end()
        if span.stored is not None:
            span.stored.end(error)

    def enter(self, span: ExportedSpan) -> Any:
        if span.parent is not None and type(span.span) is _Sender:
            return attach(span.parent)
        return attach(trace.set_span_in_context(span.span, span.parent))

    def leave(self, token: Any) -> None:
        detach(token)

    def fields(self, span: ExportedSpan | None = None) -> dict[str, str]:
        context = get_current() if span is None or span.parent is None else span.parent
        if not context and span is None:
            return {}
        named = trace.get_current_span(context) if span is None else span.span
        if self._writes_w3c() and not (context and baggage.get_all(context)):
            if type(named) is _Sender:
                return {"traceparent": named.traceparent}
            ids = named.get_span_context()
            if ids.is_valid and not ids.trace_state:
                return {"traceparent": f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{ids.trace_flags:02x}"}
        headers: dict[str, str] = {}
        propagate.inject(headers, context if span is None else trace.set_span_in_context(named, context))
        return headers

    def headers_of(self, handled: AnyRunning) -> Mapping[str, str]:
        return handled.trace_fields if self._writes_w3c() else handled.request.headers

    def continue_from(self, headers: Mapping[str, str]) -> None:
        attach(propagate.extract(headers))

    def _inherited_context(self, headers: Mapping[str, str]) -> Context | None:
        """Return the context of headers if there is no current span."""
        is_current = not headers or trace.get_current_span().get_span_context().is_valid
        return None if is_current else propagate.extract(headers)

    def _extract(self, headers: Mapping[str, str]) -> Context:
        """Return the context of headers alone."""
        named = headers.get("traceparent", "")
        if not _PARENT.fullmatch(named) or not self._writes_w3c() or "tracestate" in headers or "baggage" in headers:
            return propagate.extract(headers, Context())
        return trace.set_span_in_context(_Sender(named), _NO_CONTEXT)

    def _is_dropped(self, span: trace.Span) -> bool:
        if type(span) is _Sender:
            return span.traceparent[-1] in "02468ace"
        ids = span.get_span_context()
        return ids.is_valid and not ids.trace_flags.sampled

    def _writes_w3c(self) -> bool:
        """Return True if the program propagates W3C Trace Context alone."""
        found = propagate.get_global_textmap()
        if found is not self._format:
            self._format, self._is_w3c = found, {"traceparent"} <= found.fields <= {*FIELDS}
        return self._is_w3c
