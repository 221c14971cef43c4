"""Spans of calls, handlers and messages, named by the conventions of OpenTelemetry for RPC and
messaging. Nothing imports this module before the program has set a tracer provider.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, use_span

from tidewire._binding import __version__
from tidewire._trace_context import outgoing, running

if TYPE_CHECKING:
    from tidewire._runtime.steps import Steps
    from tidewire.services.contract.methods import Bound
    from tidewire.services.instance_transport import Request

_SYSTEM = "tidewire"
_current = functools.partial(use_span, record_exception=False, set_status_on_exception=False)


class Spans:
    """Makes the spans of a process. Its tracer is called "tidewire"."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(_SYSTEM, __version__)

    def current(self) -> dict[str, str]:
        """Return the headers that name the current span."""
        headers: dict[str, str] = {}
        propagate.inject(headers)
        return headers

    def call(self, request: Request, steps: Steps[Any]) -> Steps[Any]:
        """Return the steps of a call within the span of its client."""
        span = self.open_call(request)
        with _ended(span):
            return (yield from steps)

    def open_call(self, request: Request) -> Span:
        """Begin the span of a client, and let the request carry it."""
        parent = _parent(request.headers)
        span = self._tracer.start_span(_title(request), parent, SpanKind.CLIENT, _rpc(request))
        request.headers = {**request.headers, **_fields(span)}
        return span

    @staticmethod
    def end(span: Span, error: BaseException | None) -> None:
        """End a span, with its error if there is one. A reader that leaves a stream is none."""
        if error is not None and not isinstance(error, GeneratorExit):
            span.record_exception(error)
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
        span.end()

    def message(self, subject: str, headers: Mapping[str, str] | None) -> dict[str, str]:
        """Return the headers of a message that is published, with the span of its producer."""
        given = outgoing(headers) or {}
        attributes = _messaging(subject, "publish", "send")
        span = self._tracer.start_span(f"publish {subject}", _parent(given), SpanKind.PRODUCER, attributes)
        span.end()
        return {**given, **_fields(span)}

    def handler(self, bound: Bound, *, consumes: bool) -> Callable[..., Any]:
        """Return the function of a method within the span of its server, or of its consumer."""
        call, begin = bound.call, functools.partial(self._received, consumes)

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with begin() as span, _current(span):
                return await call(*args, **kwargs)

        def called(*args: Any, **kwargs: Any) -> Any:
            with begin() as span, _current(span):
                return call(*args, **kwargs)

        # The span is current while an item is made, and not while its reader has it.

        async def items(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            with begin() as span:
                made = aiter(call(*args, **kwargs))
                try:
                    while True:
                        with _current(span):
                            try:
                                item = await anext(made)
                            except StopAsyncIteration:
                                return
                        yield item
                finally:
                    if hasattr(made, "aclose"):
                        await made.aclose()

        def plain_items(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with begin() as span:
                made = iter(call(*args, **kwargs))
                try:
                    while True:
                        with _current(span):
                            try:
                                item = next(made)
                            except StopIteration:
                                return
                        yield item
                finally:
                    if hasattr(made, "close"):
                        made.close()

        forms = {(True, False): awaited, (False, False): called, (True, True): items, (False, True): plain_items}
        within = functools.wraps(call)(forms[bound.coroutine, bound.streams])
        if hasattr(call, "__self__"):
            within.__self__ = call.__self__  # type: ignore[attr-defined]
        return within

    @contextmanager
    def _received(self, consumes: bool) -> Iterator[Span]:
        """Begin the span of the call that this code handles, as a child of the span that it came
        from.
        """
        handled = running.get()
        assert handled is not None
        request = handled.request
        parent = propagate.extract(request.headers, Context())
        sender = trace.get_current_span(parent).get_span_context()
        subject = request.subject or _title(request)
        span = self._tracer.start_span(
            f"process {subject}" if consumes else _title(request),
            parent,
            SpanKind.CONSUMER if consumes else SpanKind.SERVER,
            {
                **(_messaging(subject, "process", "process") if consumes else _rpc(request)),
                "tidewire.service.instance": handled.instance,
            },
            [Link(sender)] if consumes and sender.is_valid else None,
        )
        with _ended(span):
            yield span


@contextmanager
def _ended(span: Span) -> Iterator[None]:
    """End a span with its block."""
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        Spans.end(span, error)
        # The traceback keeps this frame.
        del error


def _fields(span: Span) -> dict[str, str]:
    headers: dict[str, str] = {}
    propagate.inject(headers, trace.set_span_in_context(span))
    return headers


def _parent(headers: Mapping[str, str]) -> Context | None:
    """Return the context of headers where no span is current: they were given or inherited."""
    is_current = trace.get_current_span().get_span_context().is_valid
    return None if is_current else propagate.extract(headers)


def _title(request: Request) -> str:
    return f"{request.service}/{request.method}"


def _rpc(request: Request) -> dict[str, str]:
    return {"rpc.system.name": _SYSTEM, "rpc.method": _title(request)}


def _messaging(subject: str, name: str, type: str) -> dict[str, str]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.destination.name": subject,
        "messaging.operation.name": name,
        "messaging.operation.type": type,
    }
