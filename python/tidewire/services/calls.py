"""What calling a method of a client gives: something to await, or something to read with ``async for``."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from dataclasses import dataclass
from time import monotonic, perf_counter, sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidewire._current import running_loop
from tidewire.errors import InvalidArgument, NodeStopped, NoResponders, TidewireError
from tidewire.services import port as ports
from tidewire.services.channel import Ended
from tidewire.services.feeding import has_generators
from tidewire.services.limits import CALL_TIMEOUT_S
from tidewire.services.port import Items, Port, Refused, Request
from tidewire.services.resending import Resending, is_loss

if TYPE_CHECKING:
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

    @property
    def title(self) -> str:
        """What errors call it."""
        return f"{self.service}.{self.method}"

    @property
    def timeout_s(self) -> float:
        """How long it may take, if it gives one value."""
        return self.options.timeout or self.timeout or CALL_TIMEOUT_S

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

    def is_idempotent(self, group: Group) -> bool:
        """Return whether it may be made again where it is not known whether it was handled."""
        method = group.methods.get(self.method)
        return method is not None and method.idempotent and not has_generators(self.args, self.kwargs)

    def resending(self, request: Request) -> Resending:
        """Return how often it is made again after its link was lost."""
        return Resending(request.deadline, self.registry.node.links.link_resends)

    def request(self, streams: bool) -> Request:
        """Return it as it travels from here: within the time of the call that it is made in."""
        options, parent = self.options, ports.current()
        timeout = options.timeout or self.timeout if streams else self.timeout_s
        return Request(
            self.service,
            self.method,
            self.args,
            self.kwargs,
            deadline=ports.nested_deadline(self.title, timeout, parent),
            headers=options.headers,
            priority=options.priority,
            node=self.registry.node.name,
            user=None if parent is None else parent.request.user,
            parent=parent,
        )


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
            return [_answer(port.instance, reply) for port, reply in self._sent_to_all(self._sending.found())]
        group = self._sending.found()
        turn = _Turn(self._sending, group)
        while True:
            port, since = turn.next(), perf_counter()
            if port is None:
                sleep(turn.wait_s)
                continue
            try:
                value = port.call(turn.request).wait()
            except BaseException as error:  # noqa: BLE001
                turn.failed(port, since, error)
                continue
            turn.group.ended(port.instance, perf_counter() - since)
            return value

    def _begun(self) -> Generator[Any, Any, Any]:
        return self.__await__() if self._steps is None else self._steps

    def _one(self) -> Generator[Any, Any, Any]:
        turn = _Turn(self._sending, (yield from self._sending.finding()))
        while True:
            port, since = turn.next(), perf_counter()
            if port is None:
                yield from asyncio.sleep(turn.wait_s).__await__()
                continue
            try:
                value = yield from port.call(turn.request).__await__()
            except BaseException as error:  # noqa: BLE001
                turn.failed(port, since, error)
                continue
            turn.group.ended(port.instance, perf_counter() - since)
            return value

    def _all(self) -> Generator[Any, Any, Any]:
        sent = self._sent_to_all((yield from self._sending.finding()))
        answers = []
        try:
            while sent:
                port, reply = sent[0]
                try:
                    answers.append(Answer(port.instance, (yield from reply.__await__())))
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
        if has_generators(sending.args, sending.kwargs):
            raise InvalidArgument(f"{sending.title}: a stream as an argument can't go to several: call one instance")
        request = sending.request(False)
        return [(port, _sent(port, request)) for port in list(group.ports.values())]


class _Turn:
    """Which instance gets a call next, and when.

    Attributes:
        request: The call as it travels.
        group: The instances that it may go to.
        wait_s: How long to wait where ``next`` gave none.
    """

    def __init__(self, sending: Sending, group: Group) -> None:
        self.group, self.request = group, sending.request(False)
        self.wait_s = 0.0
        self._sending, self._tried = sending, set[str]()
        self._resending: Resending | None = None
        self._pausing = False

    def next(self) -> Port | None:
        """Return the way to an instance, or None: wait first."""
        if self._pausing:
            self._pausing = False
            return None
        if self._resending is None:
            return self.group.choose(self._sending.options, self._tried)
        try:
            self.group = self._sending.group()
            return self.group.choose(self._sending.options, self._tried)
        except TidewireError as error:
            self._tried = set()
            self._wait(self._resending.while_nobody(error, monotonic()), self._resending.lost or error)
            self._pausing = False
            return None

    def failed(self, port: Port, since: float, error: BaseException) -> None:
        """Note that a call failed. Returns if it is to be made once more, else raises the error."""
        if noted(self.group, port, since, error):
            self._tried.add(port.instance)
            return
        if not is_loss(error) or not self._sending.is_idempotent(self.group):
            raise error
        if self._resending is None:
            self._resending = self._sending.resending(self.request)
        wait_s = self._resending.after_loss(error, monotonic())
        self._tried = set()
        self._wait(wait_s, self._resending.lost or error)

    def _wait(self, wait_s: float | None, error: BaseException) -> None:
        if wait_s is None:
            raise error
        self.wait_s, self._pausing = wait_s, True


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


def _answer(instance: str, reply: Any) -> Answer:
    try:
        return Answer(instance, reply.wait())
    # One that fails does not take the answers of the others along.
    except Exception as error:  # noqa: BLE001
        return Answer(instance, error=error)


def _after(group: Group, port: Port, since: float, error: BaseException, tried: set[str]) -> None:
    """Note that a call failed. Returns if another instance is to be tried, else raises the error."""
    if not noted(group, port, since, error):
        raise error
    tried.add(port.instance)


def noted(group: Group, port: Port, since: float, error: BaseException) -> bool:
    """Note that a call failed, and return whether another instance is to be tried."""
    if isinstance(error, (Refused, NoResponders)) or (isinstance(error, NodeStopped) and error.retryable):
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
        self._done = False

    def _opened(self) -> Items:
        if self._items is not None:
            return self._items
        sending, tried = self._sending, set[str]()
        if sending.options.policy.kind == "all":
            raise InvalidArgument(f"{sending.title}: policy: 'all' is not allowed for a stream: read one instance")
        group, request = sending.group(), sending.request(True)
        while True:
            port = group.choose(sending.options, tried)
            try:
                self._items = port.stream(request)
            except BaseException as error:  # noqa: BLE001
                _after(group, port, perf_counter(), error, tried)
                continue
            self._group, self._port = group, port
            return self._items

    def _end(self) -> None:
        self._done = True
        if self._items is not None:
            self._items.close()
        if self._group is not None and self._port is not None:
            self._group.ended(self._port.instance, None)
            self._group = None

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
            return await self._opened().take()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:
            self._end()
            raise

    async def aclose(self) -> None:
        """Read no more, and wait until the generator was closed: its ``finally`` has run then."""
        self._end()
        if self._items is not None:
            await self._items.over()

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
            return self._opened().take_blocking()
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
