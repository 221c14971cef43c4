"""Begin and end of spans of calls, handlers and messages, for any store."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tidewire import _trace_context
from tidewire._trace_context import outgoing, running

if TYPE_CHECKING:
    from tidewire._campaigns.group import Options
    from tidewire._runtime.steps import Steps
    from tidewire._tracing.span_store import SpanStore
    from tidewire.services.contract.methods import Bound
    from tidewire.services.instance_transport import Request
    from tidewire.services.instances.inbound_call import AnyRunning

SYSTEM = "tidewire"
_END: Any = object()
Function = Callable[..., Any]
Kind = Literal["client", "server", "producer", "consumer", "internal"]
_Texts = Mapping[str, str]
_NONE: _Texts = {}


class Spans(ABC):
    """Spans of a process. Names and attributes follow the semantic conventions of OpenTelemetry for
    RPC and messaging.

    ``store`` has the newest spans for the console, if a node stores them.
    """

    exports: ClassVar[bool]
    """True if OpenTelemetry receives the spans."""
    store: SpanStore | None = None

    def __init__(self) -> None:
        _trace_context.spans = self

    @abstractmethod
    def begin(
        self,
        title: str,
        kind: Kind,
        headers: Mapping[str, str],
        attributes: dict[str, str],
        node: str = "",
        *,
        is_received: bool = False,
    ) -> Any:
        """Begin a span. Its parent is the current span, or that of the headers; for received work
        it is that of the headers.
        """

    @abstractmethod
    def end(self, span: Any, error: BaseException | None) -> None:
        """End a span, with its error, if any. A reader that leaves a stream is no error."""

    @abstractmethod
    def enter(self, span: Any) -> Any:
        """Make a span the current one, and return the token for ``leave``."""

    @abstractmethod
    def leave(self, token: Any) -> None:
        """Restore the previous current span."""

    @abstractmethod
    def fields(self, span: Any = None) -> dict[str, str]:
        """Return the headers of a span, or of the current one."""

    @abstractmethod
    def continue_from(self, headers: Mapping[str, str]) -> None:
        """Add this thread to the trace of the headers."""

    def call(self, request: Request, steps: Steps[Any], span: Any) -> Steps[Any]:
        """Return the steps of a call within its client span, which begins here unless the fast path
        has begun it.
        """
        with _SpanEnd(self, self.open_call(request, span)):
            return (yield from steps)

    def open_call(self, request: Request, span: Any = None) -> Any:
        """Begin the client span of a request, and add it to the headers."""
        if span is None:
            title = f"{request.service}/{request.method}"
            span = self.begin(title, "client", request.headers, _rpc(title), request.node)
        request.headers = {**request.headers, **self.fields(span)}
        return span

    def fast_call(self, title: str, node: str, headers: Mapping[str, str] | None) -> tuple[Any, dict[str, str]]:
        """Begin the span of a call of the fast path, and return it with the headers of the call."""
        inherited = outgoing(headers) or {}
        span = self.begin(title, "client", inherited, _rpc(title), node)
        carried = {**inherited, **self.fields(span)}
        if "traceparent" in carried:
            carried["tw-trace"] = carried["traceparent"][3:35]
        return span, carried

    def message(self, subject: str, headers: Mapping[str, str] | None, name: str = "publish") -> dict[str, str]:
        """Return the headers of a published message, with the span of its producer."""
        inherited = outgoing(headers) or {}
        span = self.begin(f"{name} {subject}", "producer", inherited, _messaging(subject, name, "send"))
        self.end(span, None)
        return {**inherited, **self.fields(span)}

    def handler(self, bound: Bound, service: str, node: str, *, consumes: bool) -> Function:
        """Return the function of a method, within a server or consumer span."""
        call, begin = bound.call, functools.partial(self._received, f"{service}/{bound.name}", node, consumes)

        # The span is current while the generator runs, not while the reader has an item.

        async def items(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            with _SpanEnd(self, begin()) as span:
                iterator = aiter(call(*args, **kwargs))
                try:
                    while True:
                        token = self.enter(span)
                        try:
                            item = await anext(iterator, _END)
                        finally:
                            self.leave(token)
                        if item is _END:
                            return
                        yield item
                finally:
                    if hasattr(iterator, "aclose"):
                        await iterator.aclose()

        def plain_items(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with _SpanEnd(self, begin()) as span:
                iterator = iter(call(*args, **kwargs))
                try:
                    while True:
                        token = self.enter(span)
                        try:
                            item = next(iterator, _END)
                        finally:
                            self.leave(token)
                        if item is _END:
                            return
                        yield item
                finally:
                    if hasattr(iterator, "close"):
                        iterator.close()

        plain = self._within(call, bound.coroutine, begin)
        form = (items if bound.coroutine else plain_items) if bound.streams else plain
        within = functools.wraps(call)(form)
        if hasattr(call, "__self__"):
            within.__self__ = call.__self__  # type: ignore[attr-defined]
        return within

    def consumer(self, name: str, headers: Mapping[str, str], call: Function, coroutine: bool = False) -> Function:
        """Return a function within the span of the consumer of a message, or of a task."""
        return self._within(call, coroutine, functools.partial(self._consumed, name, headers))

    @contextmanager
    def campaign(self, name: str, options: Options) -> Iterator[None]:
        """Begin the span of a campaign, which its workers have as their parent."""
        span = self.begin(f"campaign {name}", "internal", options.trace, {}, is_received=True)
        options.trace = self.fields(span)
        with _SpanEnd(self, span):
            yield

    def headers_of(self, handled: AnyRunning) -> Mapping[str, str]:
        """Return the headers of a call that name its span."""
        return handled.trace_fields

    def _received(self, title: str, node: str, consumes: bool) -> Any:
        """Begin the span of the call that this code handles."""
        handled = running.get()
        assert handled is not None
        headers, instance = self.headers_of(handled), {"tidewire.service.instance": handled.instance}
        if consumes:
            return self._consumed(handled.request.subject or title, headers, node, instance)
        return self.begin(title, "server", headers, {**_rpc(title), **instance}, node, is_received=True)

    def _consumed(self, subject: str, headers: Mapping[str, str], node: str = "", more: _Texts = _NONE) -> Any:
        attributes = {**_messaging(subject, "process", "process"), **more}
        return self.begin(f"process {subject}", "consumer", headers, attributes, node, is_received=True)

    def _within(self, call: Function, coroutine: bool, begin: Callable[[], Any]) -> Function:
        """Return a function that runs within a new span of ``begin``."""

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with _CurrentSpan(self, begin()):
                return await call(*args, **kwargs)

        def called(*args: Any, **kwargs: Any) -> Any:
            with _CurrentSpan(self, begin()):
                return call(*args, **kwargs)

        return awaited if coroutine else called


class _SpanEnd:
    """A block that ends a span."""

    __slots__ = ("_span", "_spans")

    def __init__(self, spans: Spans, span: Any) -> None:
        self._spans = spans
        self._span = span

    def __enter__(self) -> Any:
        return self._span

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._spans.end(self._span, error)


class _CurrentSpan(_SpanEnd):
    """A block that ends a span, and makes it the current one."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = self._spans.enter(self._span)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._spans.leave(self._token)
        self._spans.end(self._span, error)


def _rpc(title: str) -> dict[str, str]:
    return {"rpc.system.name": SYSTEM, "rpc.method": title}


def _messaging(subject: str, name: str, type: str) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": subject,
        "messaging.operation.name": name,
        "messaging.operation.type": type,
    }
