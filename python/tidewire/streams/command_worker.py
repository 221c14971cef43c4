"""Worker of one command of a service instance: runs the attempts that the node dispatches."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from tidewire._binding import ChangeCounter
from tidewire._log import log
from tidewire.errors import RemoteError, TaskTimeout, TidewireError
from tidewire.services.instance_transport import Request
from tidewire.services.instances.context import CallContext
from tidewire.services.instances.inbound_call import Failure, InboundCall
from tidewire.services.instances.outcome import error_for_caller
from tidewire.streams.event import fault_of
from tidewire.streams.progress import Progress
from tidewire.streams.stream_worker import StreamWorker
from tidewire.values import decode, encode

if TYPE_CHECKING:
    from tidewire._binding import CommandAttempt
    from tidewire.services.contract.command import CommandMark
    from tidewire.services.contract.methods import Bound
    from tidewire.services.instances.instance import ServiceInstance
    from tidewire.streams.home import Home

_TRACEBACK_MAX = 16_384

End = tuple[str, bytes | None, bytes | None, str | None, str | None]
"""The outcome, the result, the error, its line and its traceback."""


class CommandWorker(StreamWorker):
    """Worker of one command. Only ``mark`` and ``title`` may be used off the node's event loop.

    Args:
        instance: Its service instance.
        home: Storage backend of records and tokens.
        bound: The function of the command.
        mark: The options of its declaration.
        dispatcher: Dispatcher whose threads run a plain function.
        changed: Counter that rings when the worker may have become idle.
    """

    def __init__(
        self,
        instance: ServiceInstance,
        home: Home,
        bound: Bound,
        mark: CommandMark,
        dispatcher: str,
        changed: ChangeCounter,
    ) -> None:
        super().__init__(instance, home, bound, mark.concurrency, dispatcher)
        self.mark, self.consumer, self._changed = mark, None, changed

    async def open(self) -> None:
        """Create the queue if it does not exist, and start."""
        mark, instance = self.mark, self._instance
        exclusive = mark.exclusive is not None
        options = (
            instance.info.name,
            self._bound.name,
            instance.node.name,
            mark.timeout,
            mark.retries,
            exclusive,
            mark.concurrency,
            mark.keep,
        )
        engine, name = instance.node._engine, instance.node.name
        self._core = await self._home.call(
            "command_worker",
            engine,
            options,
            self._changed,
            lambda line: log.warning("command.notice", "%(line)s", node=name, line=line),
        )
        self._serve()

    # An attempt

    async def _run(self, attempt: CommandAttempt) -> None:
        loop = asyncio.get_running_loop()
        request = Request(
            self._instance.info.name, self._bound.name, (), {}, headers=attempt.trace, node=attempt.caller
        )
        running = InboundCall(request, self._bound, self._instance.id)
        attempt.on_interrupt(functools.partial(loop.call_soon_threadsafe, running.cancel))
        attempt.finish(*await self._outcome(attempt, running))

    async def _outcome(self, attempt: CommandAttempt, running: InboundCall) -> End:
        task = asyncio.get_running_loop().create_task(self._call(attempt, running))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            # The loop ends, or the node has stopped.
            task.cancel()
            raise
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            try:
                return "returned", encode(task.result()), None, None, None
            except TidewireError as refused:
                error = refused
        reason = attempt.why if isinstance(error, asyncio.CancelledError) else ""
        if reason == "timeout":
            error = TaskTimeout(
                f"{self.title}: it took longer than timeout={self.mark.timeout} s: allow more, or do less"
            )
        elif reason:
            return "cancelled" if reason == "cancelled" else "interrupted", None, None, None, None
        outcome = "raised"
        if isinstance(error, _Refused):
            error, outcome = error.error, "refused"
        else:
            self._instance.log_failure(running, error)
        error = error_for_caller(self.title, error) if not isinstance(error, asyncio.CancelledError) else error
        line, trace = fault_of(error) or ("", "")
        return outcome, None, _encoded(error), line[:1_024], trace[-_TRACEBACK_MAX:]

    async def _call(self, attempt: CommandAttempt, running: InboundCall) -> Any:
        if running.cancelled:
            raise asyncio.CancelledError
        args, kwargs = self._arguments(attempt, running)
        if self._threads is None:
            token = running.enter_task()
            try:
                return await self._bound.call(*args, **kwargs)
            finally:
                running.leave(token)
        call = functools.partial(self._bound.call, *args, **kwargs)
        pending, _ = self._threads.ask(functools.partial(self._call_on_thread, running, call), None, "normal")
        value = await pending
        if isinstance(value, Failure):
            raise value.error
        return value

    def _arguments(self, attempt: CommandAttempt, running: InboundCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the method by name, because progress and context may have any
        position.
        """
        signature = self._bound.signature
        try:
            values, named_values = decode(attempt.arguments)
            signature.check(self.title, tuple(values), named_values)
            args, kwargs = signature.convert(self.title, tuple(values), named_values)
        except TidewireError as error:
            raise _Refused(error) from None
        kwargs = dict(kwargs)
        if signature.rest is None:
            kwargs |= {one.name: value for one, value in zip(signature.positional, args, strict=False)}
            args = ()
        if signature.context is not None:
            kwargs[signature.context[0]] = CallContext(running)
        if signature.progress is not None:
            kwargs[signature.progress] = Progress(attempt.id, attempt.number, attempt.key, running, attempt.report)
        return args, kwargs


class _Refused(Exception):
    """The arguments of a command do not fit its signature."""

    def __init__(self, error: TidewireError) -> None:
        super().__init__(str(error))
        self.error: BaseException = error


def _encoded(error: BaseException) -> bytes:
    """Return an error as bytes. RemoteError with its text replaces one that can't be encoded."""
    try:
        return encode(error)
    except Exception:  # noqa: BLE001 - its parts may raise anything
        return encode(RemoteError(type(error).__qualname__, str(error)))
