"""Spans of a process without OpenTelemetry, for the console."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import ClassVar

from tidewire._trace_context import fields_of
from tidewire._tracing.span_store import StoredSpan
from tidewire._tracing.spans import Kind, Spans

_PARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_NOBODY = ("", "", "01")


class LocalSpan(StoredSpan):
    """A span with the headers of its trace context."""

    __slots__ = ("carried", "flags")

    carried: dict[str, str]
    flags: str


_current: ContextVar[LocalSpan | None] = ContextVar("tidewire_span", default=None)


class LocalSpans(Spans):
    """Spans of a process for its store. Without a store, as in a worker process, code continues the
    span of its sender.
    """

    exports: ClassVar[bool] = False

    def begin(
        self,
        title: str,
        kind: Kind,
        headers: Mapping[str, str],
        attributes: dict[str, str],
        node: str = "",
        *,
        is_received: bool = False,
    ) -> LocalSpan:
        parent = None if is_received else _current.get()
        if parent is not None:
            trace_id, parent_id, flags, carried = parent.trace_id, parent.span_id, parent.flags, parent.carried
        else:
            carried = fields_of(headers)
            named = _PARENT.match(carried.pop("traceparent", ""))
            trace_id, parent_id, flags = named.groups() if named else _NOBODY
        span_id = parent_id
        if self.store is not None:
            trace_id, span_id = trace_id or f"{random.getrandbits(128):032x}", f"{random.getrandbits(64):016x}"
        span = LocalSpan(trace_id, span_id, parent_id, title, kind, attributes, node)
        span.flags, span.carried = flags, carried
        if self.store is not None:
            self.store.add(span)
        return span

    def end(self, span: LocalSpan, error: BaseException | None) -> None:
        span.end(error)

    def enter(self, span: LocalSpan) -> Token[LocalSpan | None]:
        return _current.set(span)

    def leave(self, token: Token[LocalSpan | None]) -> None:
        # The garbage collector may close a coroutine in another context.
        with suppress(ValueError):
            _current.reset(token)

    def fields(self, span: LocalSpan | None = None) -> dict[str, str]:
        found = _current.get() if span is None else span
        if found is None or not found.trace_id:
            return {}
        return {"traceparent": f"00-{found.trace_id}-{found.span_id}-{found.flags}", **found.carried}

    def continue_from(self, headers: Mapping[str, str]) -> None:
        _current.set(self.begin("", "internal", headers, {}, is_received=True))
