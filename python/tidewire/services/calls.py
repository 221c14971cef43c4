"""What calling a method of a client gives: something to await, or something to read with ``async for``."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidewire._current import running_loop
from tidewire.errors import InvalidArgument, NoResponders, TidewireError
from tidewire.services import port as ports
from tidewire.services.channel import Ended
from tidewire.services.feeding import feed, has_streams
from tidewire.services.limits import CALL_TIMEOUT_S
from tidewire.services.port import Items, Port, Refused, Request

if TYPE_CHECKING:
    from tidewire.services.feeding import Feed
    from tidewire.services.options import CallOptions
    from tidewire.services.registry import Group, Registry


@dataclass(frozen=True)
class Answer:
    """What one instance answered to a call that went to all.

    Attributes:
        instance: The id of the instance.
        value: What it gave; None if it failed.
        error: What it raised, or None.
    """

    instance: str
    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(slots=True)
class Sending:
    """A call that has not been sent yet."""

    registry: Registry
    service: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: CallOptions
    timeout: float | None = None
    result: Callable[[Any], Any] | None = None

    @property
    def title(self) -> str:
        """What errors call it."""
        return f"{self.service}.{self.method}"

    @property
    def timeout_s(self) -> float:
        """How long it may take, if it gives one value."""
        return self.options.timeout or self.timeout or CALL_TIMEOUT_S

    def made(self, port: Port, value: Any) -> Any:
        """Return a result as the type that the client knows; one of this process is handed over as it is."""
        return value if self.result is None or not getattr(port, "over_link", False) else self.result(value)

    def group(self) -> Group:
        """Return the instances that it may go to."""
        return self.registry.group(self.service)

    def finding(self) -> Generator[Any, Any, Group]:
        """Return the instances that it may go to; where nobody is known, the hub is asked."""
        if self.registry.find(self.service) is None:
            yield from self.registry.find_again(self.service).__await__()
        return self.group()

    def found(self) -> Group:
        """As ``finding``, and block this thread."""
        self.registry.find_again_blocking(self.service)
        return self.group()

    def request(self, streams: bool, over_links: bool = False) -> Request:
        """Return it as it travels from here: within the time of the call that it is made in."""
        options, parent = self.options, ports.current()
        timeout = options.timeout or self.timeout if streams else self.timeout_s
        deadline = ports.nested_deadline(self.title, timeout, parent)
        args, kwargs, feeds = feed(self.title, self.args, self.kwargs, over_links)
        made = Request(
            self.service,
            self.method,
            args,
            kwargs,
            deadline=deadline,
            headers=options.headers,
            priority=options.priority,
            node=self.registry.node.name,
            user=None if parent is None else parent.request.user,
            parent=parent,
        )
        made.feeds = feeds
        return made


class Call(Coroutine[Any, Any, Any]):
    """A call of a method that gives one value. It is sent when it is awaited; cancelling it cancels the handler.

    Where the method is not known yet it can be read with ``async for`` as well.
    """

    __slots__ = ("__weakref__", "_sending", "_steps", "_used")

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._used = False
        self._steps: Generator[Any, Any, Any] | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._used:
            raise RuntimeError(f"{self._sending.title}: this call was awaited already: call the method again")
        self._used = True
        self._steps = steps = self._all() if self._sending.options.policy.kind == "all" else self._one()
        return steps

    # A task can be made of it, as of any coroutine.

    def send(self, value: Any) -> Any:
        """Go on, as a coroutine does."""
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where it waits, as a coroutine does."""
        return self._begun().throw(*error)

    def close(self) -> None:
        """Give it up, as a coroutine does."""
        self._used = True
        if self._steps is not None:
            self._steps.close()

    def __aiter__(self) -> Stream:
        self._used = True
        return Stream(self._sending)

    @property
    def __name__(self) -> str:
        """What a task that is made of it shows."""
        return self._sending.title

    def __repr__(self) -> str:
        return f"<Call {self._sending.title}>"

    def __del__(self) -> None:
        if not getattr(self, "_used", True):
            warnings.warn(
                f"{self._sending.title} was called and never awaited", RuntimeWarning, source=self, stacklevel=2
            )

    def run(self) -> Any:
        """Send it, and block this thread until it is answered."""
        self._used = True
        if self._sending.options.policy.kind == "all":
            sending = self._sending
            return [_answer(sending, port, reply) for port, reply in self._sent_to_all(sending.found())]
        group, tried = self._sending.found(), set[str]()
        request = self._sending.request(False, group.over_links)
        while True:
            port = group.choose(self._sending.options, tried)
            since = perf_counter()
            try:
                value = port.call(request).wait()
            except BaseException as error:  # noqa: BLE001
                _after(group, port, since, error, tried)
                continue
            group.ended(port.instance, perf_counter() - since)
            return self._sending.made(port, value)

    def _begun(self) -> Generator[Any, Any, Any]:
        return self.__await__() if self._steps is None else self._steps

    def _one(self) -> Generator[Any, Any, Any]:
        group = yield from self._sending.finding()
        request = self._sending.request(False, group.over_links)
        try:
            return (yield from self._to_one(group, request))
        finally:
            for one in request.feeds:
                yield from one.finish().__await__()

    def _to_one(self, group: Group, request: Request) -> Generator[Any, Any, Any]:
        tried = set[str]()
        while True:
            port = group.choose(self._sending.options, tried)
            since = perf_counter()
            try:
                value = yield from port.call(request).__await__()
            except BaseException as error:  # noqa: BLE001
                _after(group, port, since, error, tried)
                continue
            group.ended(port.instance, perf_counter() - since)
            return self._sending.made(port, value)

    def _all(self) -> Generator[Any, Any, Any]:
        sent = self._sent_to_all((yield from self._sending.finding()))
        answers = []
        try:
            while sent:
                port, reply = sent[0]
                try:
                    value = yield from reply.__await__()
                    answers.append(Answer(port.instance, self._sending.made(port, value)))
                except (asyncio.CancelledError, GeneratorExit):
                    raise
                # One that fails does not take the answers of the others along.
                except BaseException as error:  # noqa: BLE001
                    answers.append(Answer(port.instance, error=error))
                del sent[0]
            return answers
        finally:
            for _, reply in sent:
                reply.cancel()

    def _sent_to_all(self, group: Group) -> list[tuple[Port, Any]]:
        sending = self._sending
        if has_streams(sending.args, sending.kwargs):
            raise InvalidArgument(f"{sending.title}: a stream as an argument can't go to several: call one instance")
        request = sending.request(False)
        return [(port, _sent(port, request)) for port in list(group.ports.values())]


class _Failed:
    """A reply that was over before it began."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __await__(self) -> Generator[Any, Any, Any]:
        raise self._error
        yield

    def wait(self) -> Any:
        raise self._error

    def cancel(self) -> None:
        """There is nothing to cancel."""


def _sent(port: Port, request: Request) -> Any:
    try:
        return port.call(request)
    except TidewireError as error:
        return _Failed(error)


def _answer(sending: Sending, port: Port, reply: Any) -> Answer:
    try:
        return Answer(port.instance, sending.made(port, reply.wait()))
    # One that fails does not take the answers of the others along.
    except Exception as error:  # noqa: BLE001
        return Answer(port.instance, error=error)


def _after(group: Group, port: Port, since: float, error: BaseException, tried: set[str]) -> None:
    """Note that a call failed. Returns if another instance is to be tried, else raises the error."""
    if not noted(group, port, since, error):
        raise error
    tried.add(port.instance)


def noted(group: Group, port: Port, since: float, error: BaseException) -> bool:
    """Note that a call failed, and return whether another instance is to be tried."""
    if isinstance(error, (Refused, NoResponders)):
        group.ended(port.instance, None)
        return True
    if isinstance(error, Exception):
        group.ended(port.instance, perf_counter() - since, failed=True)
    else:
        # Whoever cancelled it says nothing of the instance.
        group.ended(port.instance, None)
    return False


class _Reading:
    """A stream that is opened when its first item is asked for, and closed when nobody holds it any more."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._group: Group | None = None
        self._port: Port | None = None
        self._items: Items | None = None
        self._feeds: list[Feed] = []
        self._done = False

    def _opened(self) -> Items:
        if self._items is not None:
            return self._items
        sending, tried = self._sending, set[str]()
        if sending.options.policy.kind == "all":
            raise InvalidArgument(f"{sending.title}: policy: 'all' is not allowed for a stream: read one instance")
        group = sending.group()
        request = sending.request(True, group.over_links)
        self._feeds = request.feeds
        while True:
            port = group.choose(sending.options, tried)
            try:
                self._items = port.stream(request)
            except BaseException as error:  # noqa: BLE001
                _after(group, port, perf_counter(), error, tried)
                continue
            self._group, self._port = group, port
            return self._items

    def _made(self, item: Any) -> Any:
        assert self._port is not None
        return self._sending.made(self._port, item)

    def _end(self) -> None:
        self._done = True
        if self._items is not None:
            self._items.close()
        if self._group is not None and self._port is not None:
            self._group.ended(self._port.instance, None)
            self._group = None
        for one in self._feeds:
            one.cancel()

    def __del__(self) -> None:
        if not getattr(self, "_done", True):
            self._end()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._sending.title}>"


class Stream(_Reading, AsyncIterator[Any]):
    """A call of a method that gives a stream: read it with ``async for``.

    It begins with the first item that is asked for. The generator is closed when the stream is: by ``aclose``, at the end of
    ``async with``, or when nobody holds it any more.
    """

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        if self._done:
            raise StopAsyncIteration
        try:
            if self._items is None:
                await self._sending.registry.find_again(self._sending.service)
            return self._made(await self._opened().take())
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:
            self._end()
            for one in self._feeds:
                await one.finish()
            raise

    async def aclose(self) -> None:
        """Read no more, and wait until the generator was closed: its ``finally`` has run then."""
        self._end()
        if self._items is not None:
            await self._items.over()
        for one in self._feeds:
            await one.finish()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise InvalidArgument(f"{self._sending.title} is a stream: read it with `async for`, rather than await it")
        yield


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
                self._sending.registry.find_again_blocking(self._sending.service)
            return self._made(self._opened().take_blocking())
        except Ended:
            self._end()
            raise StopIteration from None
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Read no more, and wait until the generator was closed: its ``finally`` has run then."""
        self._end()
        if self._items is not None:
            self._items.over_blocking()

    def __enter__(self) -> BlockingStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def refuse_loop(title: str) -> None:
    """Refuse to block the thread of an event loop.

    Raises:
        InvalidArgument: if a loop runs on this thread.
    """
    if running_loop() is not None:
        raise InvalidArgument(f"{title}: .sync would block this thread's event loop: await the same call without .sync")
