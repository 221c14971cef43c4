"""Streams of items for their callers: ``async for``, or ``for`` in a plain thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from tidewire import _trace_context
from tidewire._binding import NativeStream
from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import refuse_loop
from tidewire._runtime.futures import is_shown_by_asyncio
from tidewire.errors import InvalidArgument
from tidewire.services.caller.outbound_call import OutboundCall
from tidewire.services.caller.retry_loop import RetryLoop
from tidewire.services.channel import Ended
from tidewire.services.instance_transport import InstanceTransport, Items

if TYPE_CHECKING:
    from tidewire._binding import CallLoad
    from tidewire.services.caller.argument_streams import ArgumentStream
    from tidewire.services.registry import Group

_T = TypeVar("_T")


class NotData:
    """A call refuses to be used as its result; the error names the missing word: ``await``,
    ``async for`` or ``.sync``.
    """

    __slots__ = ()
    _sending: OutboundCall
    _read_with = "await it"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(self._is_no_data())

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(name if name.startswith("_") else f"{name}: {self._is_no_data()}")

    if not TYPE_CHECKING:
        # For type checkers there is none of this.
        __iter__ = __getitem__ = __contains__ = __len__ = _refuse

        def __bool__(self) -> bool:
            return is_shown_by_asyncio(2) or self._refuse()

    def _is_no_data(self) -> str:
        return (
            f"{self._sending.title}: this is not its result, which comes later: {self._read_with}, or call it with .sync from a "
            "plain function"
        )


class _Reading:
    """A stream that is opened when its first item is asked for, and closed when nobody holds it any
    more.
    """

    __slots__ = ("_done", "_feeds", "_group", "_items", "_load", "_port", "_sending", "_span")

    def __init__(self, sending: OutboundCall) -> None:
        self._sending = sending
        self._group: Group | None = None
        self._port: InstanceTransport | None = None
        self._load: CallLoad | None = None
        self._items: Items | None = None
        self._feeds: list[ArgumentStream] = []
        self._done = False
        self._span: Any = None

    def _opened(self) -> Items:
        if self._items is not None:
            return self._items
        sending = self._sending
        if sending.options.policy.kind == "all":
            raise InvalidArgument(f"{sending.title}: policy: 'all' is not allowed for a stream: read one instance")
        group = sending.group()
        attempts = RetryLoop(sending, group, sending.request(True, group.over_links))
        self._feeds = attempts.request.feeds
        if _trace_context.spans is not None:
            self._span = _trace_context.spans.open_call(attempts.request, sending.span)
        while True:
            port = attempts.next()
            # A pause follows a repetition after a lost link, and streams are not repeated.
            assert port is not None
            try:
                self._items = port.stream(attempts.request)
            except BaseException as error:
                if not attempts.failed(error):
                    raise
                continue
            self._group, self._port, self._load = attempts.group, port, attempts.load
            return self._items

    def _made(self, item: Any) -> Any:
        assert self._port is not None
        return self._sending.convert_result(self._port, item)

    def _end(self, error: BaseException | None = None) -> None:
        self._done = True
        span, self._span = self._span, None
        if span is not None and _trace_context.spans is not None:
            _trace_context.spans.end(span, error)
        if self._items is not None:
            self._items.close()
        if self._group is not None and self._port is not None and self._load is not None:
            self._group.ended(self._port.instance, self._load, None)
            self._group = None
        for one in self._feeds:
            one.cancel()

    def __del__(self) -> None:
        if not getattr(self, "_done", True):
            self._end()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._sending.title}>"


class _AsyncStream(NotData, AsyncIterator[_T]):
    """A stream that is read with ``async for``, or closed by ``async with``."""

    __slots__ = ()
    _read_with = "read it with `async for`"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    if not TYPE_CHECKING:
        # For type checkers there is none of this.
        def __await__(self) -> Generator[Any, Any, Any]:
            raise InvalidArgument(f"{self._sending.title} is a stream: read it with `async for`, rather than await it")
            yield


class LinkStream(NativeStream, _AsyncStream[Any]):
    """A ``Stream`` of a service in other processes. The compiled half makes it, and reads it."""

    __slots__ = ()


class Stream(_Reading, _AsyncStream[_T]):
    """A call of a method that gives a stream: read it with ``async for``.

    It begins with the first item that is asked for. The generator is closed when the stream is: by
    ``aclose``, at the end of ``async with``, when an ``async for`` that reads it is cancelled, or
    when nobody holds it any more. A single read that is cancelled, as by
    ``asyncio.wait_for(anext(stream), 1.0)``, has read nothing, and does not end it.
    """

    __slots__ = ("__weakref__",)

    def __aiter__(self) -> AsyncIterator[_T]:
        return _Loop(self)

    def __anext__(self) -> Coroutine[Any, Any, _T]:
        return self._next(_LastRead())

    async def _next(self, read: _LastRead) -> _T:
        if self._done:
            raise StopAsyncIteration
        read.was_cancelled = True
        try:
            if self._items is None and self._sending.registry.find(self._sending.service) is None:
                find = self._sending.registry.find_again(self._sending.service, self._sending.timeout_s)
                await steps.awaited(find)
            item = self._made(await self._opened().take())
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            read.was_cancelled = False
            self._end(None if isinstance(error, StopAsyncIteration) else error)
            for one in self._feeds:
                await one.finish()
            raise
        read.was_cancelled = False
        return item  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        """Read no more, and wait until the generator was closed: its ``finally`` has run then."""
        self._done = True
        for one in self._feeds:
            one.cancel()
        try:
            if self._items is not None:
                await steps.awaited(self._items.over())
        finally:
            self._end()
        for one in self._feeds:
            await one.finish()


class _Loop(AsyncIterator[_T]):
    """The iterator of one ``async for``.

    A cancelled read ends the stream once nobody holds the iterator: the loop is over then. A
    program that made the iterator by ``aiter(stream)`` still holds it, and may read on.
    """

    __slots__ = ("_read", "_stream")

    def __init__(self, stream: Stream[_T]) -> None:
        self._stream = stream
        self._read = _LastRead()
        self._read.was_cancelled = False

    def __anext__(self) -> Coroutine[Any, Any, _T]:
        # No frame of the read holds the iterator: the traceback of a cancellation may live long.
        return self._stream._next(self._read)

    def __del__(self) -> None:
        if self._read.was_cancelled:
            self._stream._end()


class _LastRead:
    """State of the last read of one iterator."""

    __slots__ = ("was_cancelled",)
    was_cancelled: bool


class BlockingStream(_Reading, Iterator[Any]):
    """A stream that is read with ``for`` in a plain thread."""

    def __iter__(self) -> BlockingStream:
        return self

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        refuse_loop(self._sending.title)
        try:
            if self._items is None:
                steps.blocking(self._sending.registry.find_again(self._sending.service, self._sending.timeout_s))
            return self._made(self._opened().take_blocking())
        except Ended:
            self._end()
            raise StopIteration from None
        except BaseException as error:
            self._end(error)
            raise

    def close(self) -> None:
        """Read no more, and wait until the generator was closed: its ``finally`` has run then."""
        self._done = True
        try:
            if self._items is not None:
                steps.blocking(self._items.over())
        finally:
            self._end()

    def __enter__(self) -> BlockingStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
