"""Trace context of calls, messages and events: the headers of W3C Trace Context and Baggage.

All calls, messages and events of a handler inherit the context of its call. With OpenTelemetry, or
a node that stores spans for the console, ``_tracing`` makes spans, and the headers name them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tidewire._tracing.spans import Spans
    from tidewire.services.instances.inbound_call import AnyRunning

_H = TypeVar("_H", bound="Mapping[str, str] | None")
FIELDS = ("traceparent", "tracestate", "baggage")
running: ContextVar[AnyRunning | None] = ContextVar("tidewire_call", default=None)
"""The current call."""
spans: Spans | None = None
"""Factory of the spans of this process; None without OpenTelemetry and a console."""


def fields_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return those of the headers that belong to the trace context."""
    return {name: headers[name] for name in FIELDS if name in headers} if headers else {}


def trace_of(headers: Mapping[str, str]) -> str | None:
    """Return the id of the trace, 32 hex digits, that ``traceparent`` names; None without one."""
    parts = headers.get("traceparent", "").split("-")
    return parts[1] if len(parts) >= 4 and len(parts[1]) == 32 else None


def outgoing(headers: _H) -> dict[str, str] | _H:
    """Return the headers of a call or a request, with the current trace context. Headers of the
    caller take precedence.
    """
    if spans is not None and (context := spans.fields()):
        return _with(context, headers)
    call = running.get()
    return headers if call is None else _with(call.trace_fields, headers)


def of_message(subject: str, headers: _H) -> dict[str, str] | _H:
    """Return the headers of a published message, with its trace context."""
    if spans is not None:
        return spans.message(subject, headers)
    call = running.get()
    return headers if call is None else _with(call.trace_fields, headers)


def without_context(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers without the trace context, which calls inherit."""
    return {name: value for name, value in headers.items() if name not in FIELDS}


def _with(context: dict[str, str], headers: _H) -> dict[str, str] | _H:
    return headers if not context else context if headers is None else {**context, **headers}
