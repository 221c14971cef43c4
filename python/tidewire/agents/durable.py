"""Durable agent: one process at a time handles the messages of its inbox, a stream, and writes each
change as one record.

The process that holds the agent's lease reads the inbox and passes each message to the agent's
actor. The record holds the finished messages, the state after them, and the messages that their
handlers have sent. Each write is a compare-and-set, so that a process without the lease can't
write. After the record, the outbox is flushed to the inboxes of the recipients. The next holder
repeats the flush; the inbox recognizes duplicates by their sender and number.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from tidewire import _limits
from tidewire._binding import AgentInbox, ChangeCounter
from tidewire._log import log
from tidewire._runtime.blocking_portal import LoopCall
from tidewire._runtime.futures import ended_within
from tidewire.agents import form, inbox_store, state_transaction
from tidewire.agents.state_transaction import Arrival, StateTransaction
from tidewire.errors import (
    InvalidArgument,
    LeaseLost,
    MessageExpired,
    NodeStopped,
    PayloadTooLarge,
    RevisionConflict,
    TidewireError,
    Unauthorized,
    Unsupported,
)
from tidewire.streams.event import fault_of
from tidewire.streams.lease import Lease

if TYPE_CHECKING:
    from tidewire.agents.agent import Agent
    from tidewire.agents.agent_state import AgentState
    from tidewire.agents.inbox_store import Record
    from tidewire.streams.event import Event
    from tidewire.streams.stream import Stream

Mode = Literal["inbox", "state"]
MODES = ("inbox", "state")
LEASE_S = 1.5
_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 2.0
_END_TIMEOUT_S = 5.0
_TRACEBACK_CHARS = 16_384
_FINAL = (InvalidArgument, NodeStopped, Unauthorized, Unsupported)


class Durable:
    """Durable part of an agent. Methods run on the node's loop, unless they allow any thread.

    Args:
        agent: The public agent.
        target: The object with the state: the agent, or an object of the user.
        agent_state: The inner state of the agent.
        mode: ``inbox``, or ``state``.
        concurrency: Maximum number of messages that it handles at once.
        enter: Adds the agent to the directory.
    """

    def __init__(
        self,
        agent: Agent,
        target: Any,
        agent_state: AgentState,
        mode: Mode,
        concurrency: int,
        enter: Callable[[], None],
    ) -> None:
        self.mode, self.target = mode, target
        self.rests = ChangeCounter()
        self.title = f"durable agent {agent.id!r}"
        self._log_fields = {"title": self.title, "node": agent_state.node.name, "agent": agent.id}
        self.arrivals: dict[int, Arrival] = {}
        self._agent, self._agent_state, self._node = agent, agent_state, agent_state.node
        self._concurrency, self._enter = concurrency, enter
        self._store = self._node._inbox_store()
        self._load: Callable[[bytes], Any] | None = None
        self._initial = b""
        if mode == "state":
            self._load, self._initial = state_transaction.state_of(target, agent.id)
        self.lease = Lease(self._node._home(), inbox_store.lease_name(agent.id), self._node.name, LEASE_S, tied=True)
        # State of one term of the lease: the record, the open messages, and the running handlers.
        self._term = 0
        self._is_open = self._is_leaving = self._is_ended = False
        self._record: Record = {}
        self._revision = 0
        self._inbox = AgentInbox(0, [], [], 0, 0, 0, 0)
        self._outbox: dict[int, tuple[str, bytes]] = {}
        self._outbox_bytes = self._sendable_to = self._purged_to = 0
        self._running: dict[int, asyncio.Task[None]] = {}
        self._retry_timers: dict[int, asyncio.TimerHandle] = {}
        self._retry_tasks: set[asyncio.Task[None]] = set()
        self._dead_letters: list[int] = []
        self._progress = asyncio.Event()
        self._next_write: asyncio.Future[None] | None = None
        self._write_task: asyncio.Task[None] | None = None
        self._failure: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        node = self._node
        node._ensure_loop()
        node._waits_for.append(self)
        node._at_goodbye.append(self.leave)

    # Lifecycle

    def begin(self) -> None:
        """Wait for the lease in the background, and become active with it. From any thread."""
        LoopCall(self._node, self._run_standby())

    @property
    def is_active(self) -> bool:
        """True if this process holds the lease, by its own clock."""
        return self._is_open and self.lease.is_held

    async def active(self, timeout: float | None) -> int:
        """Wait until the agent is active in this process, and return its fencing token."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            seen = self.rests.count
            if self.is_active:
                return self.lease.fence
            left_s = None if deadline is None else deadline - monotonic()
            if self._is_ended or (left_s is not None and left_s <= 0):
                raise TimeoutError(
                    f"agent {self._agent_state.id!r} is not active here: another process has it, or it was stopped"
                )
            await self._node._engine.changed(self.rests, seen, left_s)

    def is_idle(self) -> bool:
        """Return True if a stopping node need not wait for the agent."""
        loop = self._node._loop
        if self._is_ended or loop is None or loop.is_closed():
            return True
        return not self._is_leaving and not self._running and not (self._outbox and self._is_open)

    def leave(self) -> None:
        """Begin no further message, write the finished ones, and release the lease. From any
        thread.
        """
        loop = self._node._loop
        self._is_leaving = True
        if loop is not None and not loop.is_closed():
            self.end_on_loop()

    def end_on_loop(self) -> LoopCall[None]:
        """Run ``end`` on the node's loop, from any thread."""
        return LoopCall(self._node, self.end())

    async def end(self) -> None:
        """Leave as ``leave`` does, and wait for the end. Running handlers finish within 5 seconds,
        or the next holder handles their messages again.
        """
        self._is_leaving = True
        self._progress.set()
        if self._is_ended:
            return
        if self._is_open and self._running:
            await asyncio.wait(self._running.values(), timeout=_END_TIMEOUT_S)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait({self._task})
        self._is_ended = True
        self._node._waits_for = [one for one in self._node._waits_for if one is not self]
        self._node._at_goodbye = [hook for hook in self._node._at_goodbye if hook != self.leave]
        self.rests.ring()

    async def _run_standby(self) -> None:
        from tidewire.services.registry import registry_of

        self._task = asyncio.current_task()
        registry, wait_s = registry_of(self._node), 0.0
        while not self._is_leaving:
            seen = registry.change_counter.count
            try:
                await self.lease.acquire()
                await self._open()
                wait_s = 0.0
                await self._run_active()
                text = "%(title)s: its lease was lost: another process may have it"
                log.warning("agent.lease_lost", text, **self._log_fields)
            # It retries after every error: there may be no other process to take over.
            except Exception as error:  # noqa: BLE001
                if not wait_s:
                    text = "%(title)s: it can't go on, and begins anew: %(error)s"
                    log.warning("agent.failed", text, **self._log_fields, error=error)
                wait_s = min(max(_BACKOFF_MIN_S, 2 * wait_s), _BACKOFF_MAX_S)
            finally:
                await self._close()
            if wait_s and not self._is_leaving:
                # A restored link ends the pause.
                await registry.pause(wait_s, seen)

    async def _open(self) -> None:
        """Read the record, and write it with the new fence: the previous holder can't write any
        more.
        """
        agent_state, bucket = self._agent_state, await self._store.bucket()
        entry = await bucket.get(inbox_store.record_key(agent_state.id))
        record: Record = entry.value if entry is not None else inbox_store.new_record(agent_state.id)
        self._revision = 0 if entry is None else entry.revision
        unsure = 0 if record["left"] else self._concurrency
        open_, numbers = [tuple(one) for one in record["open"]], [tuple(one) for one in record["heard"]]
        limits = _limits.AGENT_LOST_ATTEMPTS.default, _limits.AGENT_SENDERS.default
        self._inbox = AgentInbox(record["cursor"], open_, numbers, record["sent"], unsure, *limits)
        self._outbox = {number: (to, data) for number, to, data in record["outbox"]}
        self._outbox_bytes = sum(len(data) for _, data in self._outbox.values())
        self._dead_letters = await self._store.dead_sequences(agent_state.id)
        self._record, self._term = record, self._term + 1
        self._record |= {"durable": self.mode, "holder": self._node.name, "fence": self.lease.fence, "left": False}
        self._failure, self._is_open = asyncio.get_running_loop().create_future(), True
        await self.write()
        await agent_state.ref.ask(state_transaction.BEGIN, None)
        self._enter()
        text = "%(title)s: it is active here, with fence %(fence)d"
        log.info("agent.activated", text, **self._log_fields, fence=self.lease.fence)
        self.rests.ring()

    async def _run_active(self) -> None:
        assert self._failure is not None
        tasks = [asyncio.ensure_future(part) for part in (self.lease.lost(), self._consume(), self._flush())]
        try:
            done, _ = await asyncio.wait([*tasks, self._failure], return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in tasks:
                part.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self) -> None:
        """Write the finished messages, and release the lease. The record has the outbox."""
        try:
            for timer in self._retry_timers.values():
                timer.cancel()
            self._retry_timers.clear()
            tasks = [*self._retry_tasks, *self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.is_active and not (self._failure is not None and self._failure.done()):
                self._record["left"] = True
                with contextlib.suppress(TidewireError):
                    await ended_within(self.write(), _END_TIMEOUT_S)
        finally:
            self._is_open = False
            if self._write_task is not None:
                self._write_task.cancel()
            for topic in list(self._agent_state.subscriptions):
                self._agent.unsubscribe(topic)
            self._agent_state.directory.remove(self._agent_state)
            self._agent_state.withdraw()
            # A lease that can't be released expires.
            with contextlib.suppress(TidewireError):
                await self.lease.release()
            self.rests.ring()

    # Messages from the inbox

    async def _consume(self) -> None:
        stream = await self._store.inbox(self._agent_state.id)
        for sequence in self._inbox.open():
            events = [event async for event in stream.read(start=sequence, stop=sequence)]
            if not events:
                text = "%(title)s: message %(sequence)d is gone from its inbox, and is left out"
                log.error("agent.message_lost", text, **self._log_fields, sequence=sequence)
                self._inbox.done(sequence)
            for event in events:
                await self._dispatch(event)
        async for event in stream.read(start=self._inbox.record()[0] + 1, follow=True):
            while self._inbox.count() >= _limits.AGENT_OPEN.default:
                self._progress.clear()
                await self._progress.wait()
            await self._dispatch(event)
            self._purge_history(stream)

    async def _dispatch(self, event: Event) -> None:
        """Begin a message when there is capacity for its handler."""
        while len(self._running) >= self._concurrency or len(self._outbox) >= _limits.AGENT_OUTBOX.default:
            self._progress.clear()
            await self._progress.wait()
        if self._is_leaving:
            return
        verdict, attempt = self._inbox.begin(event.sequence, *inbox_store.origin(event))
        if verdict in ("over", "copy"):
            self._schedule_write()
            return
        if verdict == "dead":
            handling = self._dead_letter(event, attempt, "lost", None)
        else:
            handling = self._handle(event, attempt, verdict == "write")
        task = self._running[event.sequence] = asyncio.get_running_loop().create_task(handling)
        task.add_done_callback(functools.partial(self._on_handled, event.sequence))

    def _on_handled(self, sequence: int, task: asyncio.Task[None]) -> None:
        if self._running.get(sequence) is task:
            del self._running[sequence]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self._progress.set()
        self.rests.ring()

    async def _handle(self, event: Event, attempt: int, is_written: bool) -> None:
        inbox, arrival = self._inbox, Arrival(event.sequence)
        try:
            if is_written:
                await self.write()
            message = form.from_msgpack(event.payload)
        except InvalidArgument as error:
            await self._dead_letter(event, attempt, "malformed", error)
            return
        message.delivery = attempt
        self.arrivals[id(message)] = arrival
        try:
            await self._agent_state.ref.ask(message, None, message.priority)
        except MessageExpired as error:
            await self._on_failure(event, is_written, "expired", error)
        except BaseException as error:
            if arrival.error is None:
                # The actor or the lease has ended: the attempt does not count.
                inbox.interrupted(event.sequence, is_written)
                self._fail(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
            else:
                await self._on_failure(event, is_written, "failed", arrival.error)
        finally:
            self.arrivals.pop(id(message), None)

    async def _on_failure(self, event: Event, is_written: bool, reason: str, error: BaseException) -> None:
        agent_state = self._agent_state
        retries = agent_state.retry.limit if reason == "failed" else 0
        is_dead, attempts = self._inbox.failed(event.sequence, is_written, retries)
        if is_dead:
            await self._dead_letter(event, attempts, reason, error)
            return
        agent_state.retried += 1
        text, sequence = "%(title)s: attempt %(attempt)d at message %(sequence)d failed: %(error)r", event.sequence
        log.debug("agent.message_retried", text, **self._log_fields, attempt=attempts, sequence=sequence, error=error)
        timer = asyncio.get_running_loop().call_later(agent_state.retry.wait_s(attempts), self._redeliver, event)
        self._retry_timers[event.sequence] = timer
        self._schedule_write()

    def _redeliver(self, event: Event) -> None:
        self._retry_timers.pop(event.sequence, None)
        task = asyncio.get_running_loop().create_task(self._dispatch(event))
        self._retry_tasks.add(task)
        task.add_done_callback(self._retry_tasks.discard)

    async def _dead_letter(self, event: Event, attempts: int, reason: str, error: BaseException | None) -> None:
        """Store a dead letter, and then mark the message as finished."""
        error_text, traceback = fault_of(error) or (f"its process has ended during each of {attempts} attempts", "")
        agent_state, bucket = self._agent_state, await self._store.bucket()
        letter = {
            "sequence": event.sequence,
            "message": event.payload,
            "attempts": attempts,
            "reason": reason,
            "error": error_text,
            "traceback": traceback[-_TRACEBACK_CHARS:],
            "time_us": inbox_store.now_us(),
        }
        term = self._term
        await self._call_until_stored(lambda: bucket.put(inbox_store.dead_key(agent_state.id, event.sequence), letter))
        if term != self._term:
            return
        text, sequence = "%(title)s: message %(sequence)d is a dead letter: %(reason)s: %(error)s", event.sequence
        log.error("agent.dead_letter", text, **self._log_fields, sequence=sequence, reason=reason, error=error_text)
        self._dead_letters.append(event.sequence)
        while len(self._dead_letters) > _limits.AGENT_DEAD_LETTERS.default:
            await bucket.delete(inbox_store.dead_key(agent_state.id, self._dead_letters.pop(0)), purge=True)
        self._inbox.done(event.sequence)
        self._record["dead"] += 1
        await self.write()

    def _purge_history(self, stream: Stream) -> None:
        """Purge old finished messages in bulk."""
        history = _limits.AGENT_HISTORY.default
        needed = self._inbox.needed_from()
        if needed - self._purged_to > 2 * history:
            self._purged_to = needed - history
            purge = asyncio.ensure_future(stream.purge(before=self._purged_to))
            purge.add_done_callback(lambda task: None if task.cancelled() else task.exception())

    # State transactions

    def begin_transaction(self, message: Any) -> StateTransaction:
        """Begin the transaction of a handler. ``message`` is the object that the actor received.

        Raises:
            LeaseLost: if this process does not hold the lease.
        """
        self._check_term(self._term)
        return StateTransaction(self, self._term, self.arrivals.get(id(message)))

    def _check_term(self, term: int) -> None:
        if not self.is_active or term != self._term:
            raise LeaseLost(
                f"agent {self._agent_state.id!r}: this process does not have it: another may; send durably, or ask again"
            )

    def restore(self) -> None:
        """Restore the state of the last write, or else the state at registration."""
        if self._load is not None:
            stored = self._record.get("state")
            self.target.state = self._load(self._initial if stored is None else stored)

    async def commit(self, transaction: StateTransaction) -> None:
        """Write the results of a handler: the state, the finished message, and the sent messages.

        Raises:
            LeaseLost: if this process does not hold the lease; nothing is written.
            PayloadTooLarge: if the state or the sent messages are too large.
        """
        self._check_term(transaction.term)
        record = self._record
        if self._load is None:
            if transaction.arrival is not None:
                self._inbox.done(transaction.arrival.sequence)
                record["handled"] += 1
                self._schedule_write()
            return
        state = state_transaction.encode_state(self.target.state)
        bytes_max = _limits.AGENT_STATE_BYTES.default
        sends = sum(len(data) for _, data in transaction.sends)
        for part, size in (
            ("its state", len(state)),
            ("its messages that are not stored yet", self._outbox_bytes + sends),
        ):
            if size > bytes_max:
                raise PayloadTooLarge(
                    f"agent {self._agent_state.id!r}: {part} takes {size:,} bytes, and {bytes_max:,} are allowed: put it into a bucket, and keep the key"
                )
        if transaction.arrival is None and not transaction.sends and state == record["state"]:
            return
        for to, data in transaction.sends:
            self._outbox[self._inbox.send()] = to, data
        self._outbox_bytes += sends
        record["state"] = state
        if transaction.arrival is not None:
            self._inbox.done(transaction.arrival.sequence)
            record["handled"] += 1
        await self.write()

    # Record

    def write(self) -> Awaitable[None]:
        """Write the current record. The write includes changes until it begins.

        Raises:
            LeaseLost: if another process has written the record.
        """
        return asyncio.shield(self._schedule_write())

    def _schedule_write(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._next_write is None:
            self._next_write = loop.create_future()
            # It may have no waiter.
            self._next_write.add_done_callback(lambda future: future.exception())
        if self._write_task is None:
            self._write_task = loop.create_task(self._write_all())
            self._write_task.add_done_callback(self._on_write_end)
        return self._next_write

    async def _write_all(self) -> None:
        while self._next_write is not None:
            future, self._next_write = self._next_write, None
            error: BaseException = self._write_error()
            try:
                await self._put_record()
                future.set_result(None)
            except TidewireError as raised:
                error = raised
                self._fail(error)
            finally:
                if not future.done():
                    future.set_exception(error)
        # Without an await since the check: later changes start a new task.
        self._write_task = None

    def _on_write_end(self, task: asyncio.Task[None]) -> None:
        """Fail the pending write if its task was cancelled or has failed."""
        if not task.cancelled() and task.exception() is None:
            return
        self._write_task, future, self._next_write = None, self._next_write, None
        if future is not None:
            future.set_exception(self._write_error())
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _write_error(self) -> LeaseLost:
        return LeaseLost(f"agent {self._agent_state.id!r}: its record was not written: another process may have it")

    async def _put_record(self) -> None:
        bucket, key = await self._store.bucket(), inbox_store.record_key(self._agent_state.id)
        record = self._record
        cursor, open_, numbers, sent = self._inbox.record()
        record |= {
            "commit": record["commit"] + 1,
            "cursor": cursor,
            "open": open_,
            "heard": numbers,
            "sent": sent,
            "outbox": [(number, to, data) for number, (to, data) in self._outbox.items()],
            "time_us": inbox_store.now_us(),
        }
        snapshot = dict(record)

        async def put() -> None:
            try:
                self._revision = await bucket.update(key, snapshot, revision=self._revision)
            except RevisionConflict:
                entry = await bucket.get(key)
                own = snapshot["fence"], snapshot["commit"]
                if entry is None or (entry.value["fence"], entry.value["commit"]) != own:
                    raise LeaseLost(f"agent {self._agent_state.id!r}: another process has written its record") from None
                # The write succeeded, but its reply was lost.
                self._revision = entry.revision

        await self._call_until_stored(put)
        self._sendable_to = sent
        if self._outbox:
            self._progress.set()

    async def _call_until_stored(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Call the storage backend with retries while the lease is held."""
        wait_s = 0.0
        while True:
            try:
                await call()
            except (LeaseLost, *_FINAL):
                raise
            except TidewireError as error:
                if not self.is_active:
                    raise LeaseLost(f"agent {self._agent_state.id!r}: its home can't be reached: {error}") from error
                wait_s = min(max(_BACKOFF_MIN_S, 2 * wait_s), _BACKOFF_MAX_S)
                await asyncio.sleep(wait_s)
            else:
                return

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()

    # Outbox

    async def _flush(self) -> None:
        """Flush the outbox to the inboxes of the recipients, in order for each recipient."""
        wait_s = 0.0
        sender = f"{inbox_store.token(self._agent_state.id)}.{self._record['epoch']}"
        while True:
            refused: set[str] = set()
            for number, (to, data) in list(self._outbox.items()):
                if number > self._sendable_to or to in refused:
                    continue
                headers = {inbox_store.SENDER: sender, inbox_store.NUMBER: str(number)}
                try:
                    await self._store.post(to, data, f"{sender}.{number}", headers)
                except TidewireError as error:
                    if not refused and not wait_s:
                        text = "%(title)s: messages to %(to)r wait: %(error)s"
                        log.warning("agent.outbox_waits", text, **self._log_fields, to=to, error=error)
                    refused.add(to)
                else:
                    del self._outbox[number]
                    self._outbox_bytes -= len(data)
                    self._progress.set()
                    self.rests.ring()
            if refused:
                wait_s = min(max(_BACKOFF_MIN_S, 2 * wait_s), _BACKOFF_MAX_S)
                await asyncio.sleep(wait_s)
                continue
            wait_s = 0.0
            while not any(number <= self._sendable_to for number in self._outbox):
                self._progress.clear()
                await self._progress.wait()
