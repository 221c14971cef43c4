"""Calls of a client's methods: awaitables, or streams for ``async for``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidewire._binding import Pending
from tidewire._runtime import steps
from tidewire._runtime.futures import TRACES, made_at, never_awaited
from tidewire.errors import InvalidArgument, TidewireError
from tidewire.services.caller.argument_streams import has_streams
from tidewire.services.caller.outbound_call import OutboundCall
from tidewire.services.caller.retry_loop import RetryLoop
from tidewire.services.instance_transport import InstanceTransport, Request
from tidewire.services.stream_reader import NotData, Stream

if TYPE_CHECKING:
    from tidewire.services.registry import Group


@dataclass(frozen=True)
class Answer:
    """Reply of one instance to a call with the policy "all".

    Attributes:
        instance: The id of the instance.
        value: Its result; None if it failed.
        error: Its exception, or None.
    """

    instance: str
    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class LinkCall(Pending[Any]):
    """A call of a method with one result, to another process. The compiled part makes it."""

    __slots__ = ()

    def __aiter__(self) -> AsyncIterator[Any]:
        # The method was unknown at the call, and is a stream.
        return Stream(self._outbound_call()).__aiter__()


class Call(NotData, Coroutine[Any, Any, Any]):
    """A call of a method with one result. The await sends it; cancelling it cancels the handler."""

    __slots__ = ("__weakref__", "_made", "_sending", "_steps", "_used")

    def __init__(self, sending: OutboundCall) -> None:
        self._sending = sending
        self._made = made_at() if TRACES else None
        self._used = False
        self._steps: Generator[Any, Any, Any] | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._used:
            raise RuntimeError(f"{self._sending.title}: this call was awaited already: call the method again")
        self._used = True
        self._steps = call = self._call_all() if self._sending.options.policy.kind == "all" else self._call_one()
        return call

    # The coroutine protocol, for tasks.

    def send(self, value: Any) -> Any:
        """Resume it, as a coroutine."""
        return self._coroutine().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error in it, as a coroutine."""
        return self._coroutine().throw(*error)

    def close(self) -> None:
        """Close it, as a coroutine."""
        self._used = True
        if self._steps is not None:
            self._steps.close()

    def __aiter__(self) -> AsyncIterator[Any]:
        self._used = True
        return Stream(self._sending).__aiter__()

    @property
    def __name__(self) -> str:
        """Name of a task that runs the call."""
        return self._sending.title

    def __repr__(self) -> str:
        return f"<Call {self._sending.title}>"

    def __del__(self) -> None:
        if not getattr(self, "_used", True):
            never_awaited(self._sending.title, self._made, 3)

    def run(self) -> Any:
        """Send the call, and block this thread until its reply."""
        self._used = True
        if self._sending.options.policy.kind == "all":
            sending = self._sending
            return [_answer(sending, port, reply) for port, reply in self._send_to_all(sending.resolve_blocking())]
        return steps.blocking(self._attempts(self._sending.resolve_blocking()).steps())

    def _coroutine(self) -> Generator[Any, Any, Any]:
        return self.__await__() if self._steps is None else self._steps

    def _attempts(self, group: Group) -> RetryLoop:
        return RetryLoop(self._sending, group, self._sending.request(False, group.over_links))

    def _call_one(self) -> Generator[Any, Any, Any]:
        attempts = self._attempts((yield from self._sending.resolve_async()))
        try:
            return (yield from steps.awaiting(attempts.steps()))
        finally:
            for one in attempts.request.feeds:
                yield from one.finish().__await__()

    def _call_all(self) -> Generator[Any, Any, Any]:
        replies = self._send_to_all((yield from self._sending.resolve_async()))
        answers = []
        try:
            while replies:
                port, reply = replies[0]
                try:
                    value = yield from reply.__await__()
                    answers.append(Answer(port.instance, self._sending.convert_result(port, value)))
                except (asyncio.CancelledError, GeneratorExit):
                    raise
                # One failure does not discard the other answers.
                except BaseException as error:  # noqa: BLE001
                    answers.append(Answer(port.instance, error=error))
                del replies[0]
            return answers
        finally:
            for _, reply in replies:
                reply.cancel()

    def _send_to_all(self, group: Group) -> list[tuple[InstanceTransport, Any]]:
        sending = self._sending
        if has_streams(sending.args, sending.kwargs):
            raise InvalidArgument(f"{sending.title}: a stream as an argument can't go to several: call one instance")
        request = sending.request(False)
        return [(port, _send(port, request)) for port in group.audience()]


class CallOrStream(Call):
    """A call of an unknown method: it can be awaited, or read as a stream."""

    __slots__ = ("_stream",)

    def __init__(self, sending: OutboundCall) -> None:
        super().__init__(sending)
        self._stream: Stream[Any] | None = None

    def _read(self) -> Stream[Any]:
        if self._stream is None:
            self._used = True
            self._stream = Stream(self._sending)
        return self._stream

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._read().__aiter__()

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self._read().__anext__()

    async def aclose(self) -> None:
        """Stop reading; see ``Stream.aclose``."""
        await self._read().aclose()

    async def __aenter__(self) -> Stream[Any]:
        return self._read()

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class _Failed:
    """A reply of a call that could not be sent."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __await__(self) -> Generator[Any, Any, Any]:
        raise self._error
        yield

    def wait(self) -> Any:
        raise self._error

    def cancel(self) -> None:
        """Do nothing."""


def _send(port: InstanceTransport, request: Request) -> Any:
    try:
        return port.call(request)
    except TidewireError as error:
        return _Failed(error)


def _answer(sending: OutboundCall, port: InstanceTransport, reply: Any) -> Answer:
    try:
        return Answer(port.instance, sending.convert_result(port, reply.wait()))
    # One failure does not discard the other answers.
    except Exception as error:  # noqa: BLE001
        return Answer(port.instance, error=error)
