"""The worker of one command of a served instance: it fetches tokens, runs commands, reports their
progress and writes how they end.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tidewire._binding import CommandSlotsCore
from tidewire._log import logger
from tidewire.errors import (
    InvalidArgument,
    LeaseHeld,
    NodeStopped,
    NotFound,
    PayloadTooLarge,
    SettingsDiffer,
    TaskTimeout,
    TidewireError,
    Unauthorized,
    Unsupported,
)
from tidewire.services.instance_transport import Request
from tidewire.services.instances.concurrency_limits import ConcurrencyLimits
from tidewire.services.instances.context import CallContext
from tidewire.services.instances.inbound_call import Failure, InboundCall
from tidewire.services.instances.outcome import error_for_caller
from tidewire.services.instances.thread_workers import ThreadWorkers
from tidewire.streams.command_attempt import Attempt, encoded_error, end_with
from tidewire.streams.command_info import LEASE_S, PRIORITIES, QUEUE
from tidewire.streams.event import Event, fault_of
from tidewire.streams.lease import Lease
from tidewire.streams.outage import RetryPause
from tidewire.streams.progress import Progress
from tidewire.values import decode, encode

if TYPE_CHECKING:
    from tidewire.services.contract.command import CommandMark
    from tidewire.services.contract.methods import Bound
    from tidewire.services.instances.instance import ServiceInstance
    from tidewire.streams.consumer import Settled
    from tidewire.streams.home import Home

_BYTES_MAX = 4 << 20
_TRIES_MAX = 300
_CROWDED_US = 1_000_000
_TIDY_EVERY = 256
_TRACEBACK_MAX = 16_384
_FINAL = (InvalidArgument, NodeStopped, NotFound, PayloadTooLarge, SettingsDiffer, Unauthorized, Unsupported)

Token = tuple[int, int, int]
"""A token of the queue: its priority, its sequence, and the ticket of this delivery."""


class CommandWorker:
    """The worker of one command. All but ``mark`` and ``title`` is for the node's event loop.

    Args:
        host: The instance that it belongs to.
        home: Storage backend of records and tokens.
        bound: The function of the command.
        mark: The options it was declared with.
        dispatcher: Dispatcher whose threads run a plain function.
        changed: Called when it may be idle.
    """

    def __init__(
        self,
        host: ServiceInstance,
        home: Home,
        bound: Bound,
        mark: CommandMark,
        dispatcher: str,
        changed: Callable[[], None],
    ) -> None:
        self.mark = mark
        self.title = f"{host.info.name}.{bound.name}"
        self.consumer = None
        self._host, self._home, self._bound, self._changed = host, home, bound, changed
        self._machine = CommandSlotsCore(mark.concurrency, len(PRIORITIES), round(LEASE_S * 1_000_000))
        self._crew = (
            None
            if bound.coroutine
            else ThreadWorkers(host.node, ConcurrencyLimits(mark.concurrency, 0, 0, 1), dispatcher, None)
        )
        self._consumers: list[str] = []
        self._ids: dict[int, str] = {}
        self._attempts: dict[int, Attempt] = {}
        self._doing: dict[int, asyncio.Task[None]] = {}
        self._waiting: set[int] = set()
        self._fetching: dict[int, asyncio.Task[Any]] = {}
        # By queue: the operation and the token of a fetch, and the request to end it.
        self._settling: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._pause = RetryPause(host.node)
        self._is_cut = False
        # Tokens that were fetched; of them those whose commands are over, and those that went back.
        self.fetched = self.handled = self.returned = 0

    # Its life

    async def open(self) -> None:
        """Make the queue, if it is not there, and begin."""
        for priority in PRIORITIES:
            name = await self._home.call("command_consumer", self._host.info.name, self._bound.name, priority)
            self._consumers.append(name)
        self._pump()

    @property
    def is_idle(self) -> bool:
        """True if no command is under way, and nothing is to be settled."""
        return not self._doing and not self._settling

    @property
    def is_over(self) -> bool:
        """True if the worker was drained, and nothing is left."""
        return self._machine.is_over() and self.is_idle and not self._fetching

    def drain(self) -> None:
        """Begin nothing more. Running commands end; a command that waits for its key goes back."""
        for token in self._machine.drain():
            self._give_back(token)
        for sequence in list(self._waiting):
            self._doing[sequence].cancel()
        for fetching in list(self._fetching.values()):
            fetching.cancel()
        self._pump()

    def cut(self) -> None:
        """Begin nothing more, interrupt the running commands, and give all of them back."""
        self._is_cut = True
        for attempt in list(self._attempts.values()):
            attempt.end("cut")
        self.drain()

    def end(self) -> None:
        """Release everything: nobody waits for it any more."""
        for task in (*self._fetching.values(), *self._doing.values(), *self._settling):
            if task is not None:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._crew is not None:
            self._crew.end()

    # Its tokens

    def _pump(self) -> None:
        """Do the pending actions: begin fetched commands, fetch, extend."""
        loop = asyncio.get_running_loop()
        while (token := self._machine.begin()) is not None:
            task = loop.create_task(self._do(token))
            self._doing[token[1]] = task
            task.add_done_callback(functools.partial(self._done, token))
        for queue, count, waits in self._machine.fetches() if self._consumers else ():
            fetching = loop.create_task(self._fetch(queue, count, waits))
            self._fetching[queue] = fetching
            fetching.add_done_callback(functools.partial(self._fetched, queue))
        due_s = self._machine.extend_in()
        if self._timer is None and due_s is not None:
            self._timer = loop.call_later(due_s, self._extend)
        self._changed()

    async def _fetch(self, queue: int, count: int, waits: bool) -> Any:
        wait_us = self._home.wait_us if waits else 0
        try:
            raw = await self._home.call("fetch", QUEUE, self._consumers[queue], count, _BYTES_MAX, wait_us)
        except TidewireError as error:
            await self._failed(error)
            return ()
        self._pause.end()
        return raw

    def _fetched(self, queue: int, task: asyncio.Task[Any]) -> None:
        self._fetching.pop(queue, None)
        # It drains, or the loop ends: what was on its way goes back.
        events = [] if task.cancelled() else [Event(fields, None) for fields in task.result()]
        for event in events:
            self._ids[event.sequence] = event.value
        self.fetched += len(events)
        for token in self._machine.fetched(queue, [(event.sequence, event._ticket) for event in events]):
            self._give_back(token)
        self._pump()

    def _give_back(self, token: Token) -> None:
        self._ids.pop(token[1], None)
        self.returned += 1
        self._settle(token, "release", None)

    def _extend(self) -> None:
        self._timer = None
        for token in self._machine.extend():
            self._settle(token, "working", None)
        self._pump()

    def _settle(self, token: Token, how: str, delay_us: int | None) -> None:
        task = asyncio.get_running_loop().create_task(self._settled(token, how, delay_us))
        self._settling.add(task)
        task.add_done_callback(self._has_settled)

    def _has_settled(self, task: asyncio.Task[None]) -> None:
        self._settling.discard(task)
        self._changed()

    async def _settled(self, token: Token, how: str, delay_us: int | None) -> None:
        queue, sequence, ticket = token
        settled: Settled = (sequence, ticket, how, delay_us, "", None)
        try:
            [result] = await self._home.call("settle", QUEUE, self._consumers[queue], [settled])
        except TidewireError as error:
            # The token comes again after its lease; the record says what has become of its command.
            logger.debug("%s: %s of token %d: %s", self.title, how, sequence, error)
            return
        attempt = self._attempts.get(sequence)
        if result is not None and how == "working" and attempt is not None:
            attempt.end("lost")

    def _done(self, token: Token, task: asyncio.Task[None]) -> None:
        self._doing.pop(token[1], None)
        self._ids.pop(token[1], None)
        self._machine.ended(token[1])
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: %s", self.title, error, exc_info=error)
        self._pump()

    # Its commands

    async def _do(self, token: Token) -> None:
        """Process a token, and settle it."""
        how, delay_us = "release", None
        try:
            how, delay_us = await self._worked(token)
        except _FINAL as error:
            logger.error("%s: command %s: %s", self.title, self._ids.get(token[1]), error)
            how, delay_us = "nak", _CROWDED_US
        except TidewireError as error:
            logger.warning("%s: command %s: %s", self.title, self._ids.get(token[1]), error)
            how, delay_us = "nak", _CROWDED_US
        finally:
            if how == "ack":
                self.handled += 1
                if self.handled % _TIDY_EVERY == 0:
                    self._tidy()
            else:
                self.returned += 1
            if how:
                self._settle(token, how, delay_us)

    async def _worked(self, token: Token) -> tuple[str, int | None]:
        """Return how a token is to be settled, and after how many microseconds it comes again."""
        name = self._ids[token[1]]
        if self.mark.exclusive is None:
            return await self._begun(token, name, None)
        try:
            is_over, data = await self._held("command_record", name)
        except NotFound:
            return "ack", None
        record = decode(data)
        if is_over or record["key"] is None:
            return await self._begun(token, name, None)
        lease = await self._leased(token, record)
        if isinstance(lease, tuple):
            return lease
        try:
            return await self._begun(token, name, lease)
        finally:
            await self._quietly(lease.release())

    async def _leased(self, token: Token, record: dict[str, Any]) -> Lease | tuple[str, int | None]:
        """Take the lease of a key, or return how the token is to be settled."""
        said = hashlib.blake2b(record["key"].encode(), digest_size=16).hexdigest()
        name, holder = f"command.{self.title}.{said}", f"{self._host.node.name}/{record['id']}"
        lease = Lease(self._home, name, holder, LEASE_S, 0.0)
        try:
            await lease.acquire()
            return lease
        except LeaseHeld:
            if not self._machine.park(token[1]):
                return "nak", _CROWDED_US
        self._waiting.add(token[1])
        self._pump()
        lease = Lease(self._home, name, holder, LEASE_S, None)
        try:
            await lease.acquire()
        finally:
            self._waiting.discard(token[1])
        if self._machine.unpark(token[1]):
            return lease
        await self._quietly(lease.release())
        return "release", None

    async def _begun(self, token: Token, id: str, lease: Lease | None) -> tuple[str, int | None]:
        """Begin an attempt, run it, and write how it ended."""
        mark = self.mark
        keep_us = round(mark.keep * 1_000_000)
        begun = await self._held("command_begin", id, token[1], self._host.node.name, mark.retries, keep_us)
        if begun is None:
            return "ack", None
        data, revision = begun
        return await self._run(token, decode(data), revision, lease)

    async def _run(
        self, token: Token, record: dict[str, Any], revision: int, lease: Lease | None
    ) -> tuple[str, int | None]:
        loop = asyncio.get_running_loop()
        request = Request(self._host.info.name, self._bound.name, (), {}, node=record["caller"])
        attempt = Attempt(record, InboundCall(request, self._bound, self._host.instance))
        self._attempts[token[1]] = attempt
        if self._is_cut:
            attempt.end("cut")
        guards = [loop.create_task(self._watched(attempt, revision))]
        if lease is not None:
            guards.append(loop.create_task(end_with(lease, attempt)))
        timeout = None if self.mark.timeout is None else loop.call_later(self.mark.timeout, attempt.end, "timeout")
        try:
            outcome, *end = await self._outcome(attempt)
        finally:
            if timeout is not None:
                timeout.cancel()
            for guard in guards:
                guard.cancel()
            del self._attempts[token[1]]
        if attempt.storing is not None:
            await asyncio.wait({attempt.storing})
        settled: tuple[str, int | None] = await self._held(
            "command_end", record["id"], attempt.number, outcome, (*end, attempt.reported)
        )
        return settled

    async def _outcome(self, attempt: Attempt) -> tuple[str, bytes | None, bytes | None, str | None, str | None]:
        """Run the method; return the outcome, the result, the error, its line and its traceback."""
        task = asyncio.get_running_loop().create_task(self._called(attempt))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            # The loop ends, or nobody waits for the node any more.
            task.cancel()
            raise
        if task.cancelled():
            error: BaseException | None = asyncio.CancelledError()
        else:
            error = task.exception()
        if error is None:
            try:
                return "returned", encode(task.result()), None, None, None
            except TidewireError as refused:
                error = refused
        why = attempt.why if isinstance(error, asyncio.CancelledError) else ""
        if why == "timeout":
            error = TaskTimeout(
                f"{self.title}: it took longer than timeout={self.mark.timeout} s: allow more, or do less"
            )
        elif why:
            return "cancelled" if why == "cancelled" else "interrupted", None, None, None, None
        if isinstance(error, _Refused):
            error = error.error
            outcome = "refused"
        else:
            outcome = "raised"
            self._host.log_failure(attempt.running, error)
        error = error_for_caller(self.title, error) if not isinstance(error, asyncio.CancelledError) else error
        line, trace = fault_of(error) or ("", "")
        return outcome, None, encoded_error(error), line[:1_024], trace[-_TRACEBACK_MAX:]

    async def _called(self, attempt: Attempt) -> Any:
        running = attempt.running
        if running.cancelled:
            raise asyncio.CancelledError
        args, kwargs = self._arguments(attempt)
        if self._crew is None:
            token = running.enter_task()
            try:
                return await self._bound.call(*args, **kwargs)
            finally:
                running.leave(token)
        pending, _ = self._crew.ask(functools.partial(self._on_thread, running, args, kwargs), None, "normal")
        value = await pending
        if isinstance(value, Failure):
            raise value.error
        return value

    def _on_thread(self, running: InboundCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        token = running.enter()
        try:
            return self._bound.call(*args, **kwargs)
        # It belongs to the command, and not to the actor that ran it.
        except BaseException as error:  # noqa: BLE001
            return Failure(error)
        finally:
            running.leave(token)

    def _arguments(self, attempt: Attempt) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the method: by name, so that progress and context may stand
        anywhere.
        """
        signature, record = self._bound.signature, attempt.record
        try:
            given, named = decode(record["arguments"])
            signature.check(self.title, tuple(given), named)
            args, kwargs = signature.convert(self.title, tuple(given), named)
        except TidewireError as error:
            raise _Refused(error) from None
        kwargs = dict(kwargs)
        if signature.rest is None:
            kwargs |= {one.name: value for one, value in zip(signature.positional, args, strict=False)}
            args = ()
        if signature.context is not None:
            kwargs[signature.context[0]] = CallContext(attempt.running)
        if signature.progress is not None:
            report = functools.partial(self._reported, attempt, asyncio.get_running_loop())
            kwargs[signature.progress] = Progress(record["id"], attempt.number, record["key"], attempt.running, report)
        return args, kwargs

    # Tasks beside an attempt

    def _reported(self, attempt: Attempt, loop: asyncio.AbstractEventLoop, fraction: float, note: str) -> None:
        """A command has reported, on any thread. The newest report is stored as soon as the one
        before is.
        """
        attempt.reported = (fraction, note, attempt.number, time.time_ns() // 1_000)
        if attempt.storing is None:
            loop.call_soon_threadsafe(self._store_report, attempt)

    def _store_report(self, attempt: Attempt) -> None:
        if attempt.storing is None and attempt.reported is not attempt.stored:
            attempt.storing = asyncio.get_running_loop().create_task(self._storing(attempt))

    async def _storing(self, attempt: Attempt) -> None:
        try:
            while attempt.reported is not attempt.stored:
                newest = attempt.reported
                await self._quietly(self._home.call("command_report", attempt.record["id"], newest))
                attempt.stored = newest
        finally:
            attempt.storing = None

    async def _watched(self, attempt: Attempt, revision: int) -> None:
        """End an attempt when its command is cancelled, or another attempt has begun."""
        while True:
            try:
                is_cancelled = await self._home.call(
                    "command_interrupted", attempt.record["id"], attempt.number, revision
                )
            except _FINAL:
                # The final write of the attempt is refused for the same reason, and the caller sees
                # that error.
                return
            except TidewireError as error:
                await self._failed(error)
                continue
            return attempt.end("cancelled" if is_cancelled else "lost")

    # Its home

    async def _held(self, call: str, *args: Any) -> Any:
        """Call the storage backend, with retries while it is away; the token is held meanwhile."""
        for _ in range(_TRIES_MAX):
            try:
                found = await self._home.call(call, *args)
                self._pause.end()
                return found
            except _FINAL:
                raise
            except TidewireError as error:
                await self._failed(error)
        return await self._home.call(call, *args)

    async def _quietly(self, call: Awaitable[Any]) -> None:
        """Make a call of the storage backend that may fail without a loss."""
        try:
            await call
        except TidewireError as error:
            logger.debug("%s: %s", self.title, error)

    def _tidy(self) -> None:
        task = asyncio.get_running_loop().create_task(self._quietly(self._home.call("command_tidy")))
        self._settling.add(task)
        task.add_done_callback(self._has_settled)

    async def _failed(self, error: TidewireError) -> None:
        """Wait before something is tried again."""
        if isinstance(error, _FINAL):
            for token in self._machine.drain():
                self._give_back(token)
            if not self._is_cut:
                logger.error("%s: it does no more commands: %s", self.title, error)
            return
        if not self._pause.has_begun:
            logger.warning("%s: its home can't be reached, and it tries again: %s", self.title, error)
        await self._pause.wait()


class _Refused(Exception):
    """The arguments of a command do not fit."""

    def __init__(self, error: TidewireError) -> None:
        super().__init__(str(error))
        self.error: BaseException = error
