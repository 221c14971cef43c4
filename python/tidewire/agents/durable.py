"""Durable agent: its messages lie in a stream, one process at a time handles them, and each change
is one record.

The process that holds the agent's lease reads its inbox and hands each message to the agent's
actor. The record holds the finished messages, the state after them, and the messages that their
handlers have sent. Each write is a compare-and-set, so that a process that has lost the lease
writes nothing. The sent messages are stored in the inboxes of their recipients after the record.
The next holder repeats that if need be; the number of a message shows the inbox that it is a
duplicate.
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
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0
_GOODBYE_S = 5.0
_TRACEBACK_CHARS = 16_384
_FINAL = (InvalidArgument, NodeStopped, Unauthorized, Unsupported)


class Durable:
    """The durable side of an agent. All but ``leave`` is for the node's event loop.

    Args:
        agent: The agent, as users hold it.
        target: The object with the state: the agent, or the user's object.
        agent_state: The inner state of the agent.
        mode: ``inbox``, or ``state``.
        concurrency: How many messages it handles at once.
        enter: Lets others find the agent.
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
        self._names = {"title": self.title, "node": agent_state.node.name, "agent": agent.id}
        self.arrivals: dict[int, Arrival] = {}
        self._agent, self._agent_state, self._node = agent, agent_state, agent_state.node
        self._concurrency, self._enter = concurrency, enter
        self._store = self._node._inbox_store()
        self._load: Callable[[bytes], Any] | None = None
        self._initial = b""
        if mode == "state":
            self._load, self._initial = state_transaction.state_of(target, agent.id)
        self.lease = Lease(self._node._home(), inbox_store.lease_name(agent.id), self._node.name, LEASE_S, tied=True)
        # While the lease is held: the record, the messages on their way, and the running handlers.
        self._holding = 0
        self._is_open = self._leaving = self._is_over = False
        self._record: Record = {}
        self._revision = 0
        self._inbox = AgentInbox(0, [], [], 0, 0, 0, 0)
        self._outbox: dict[int, tuple[str, bytes]] = {}
        self._outbox_bytes = self._sent_to = self._purged_to = 0
        self._running: dict[int, asyncio.Task[None]] = {}
        self._later: dict[int, asyncio.TimerHandle] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        self._dead: list[int] = []
        self._moved = asyncio.Event()
        self._written: asyncio.Future[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        node = self._node
        node._ensure_loop()
        node._waits_for.append(self)
        node._at_goodbye.append(self.leave)

    # Its life

    def begin(self) -> None:
        """Stand by, and begin as soon as no other process has the agent. From any thread."""
        LoopCall(self._node, self._stand())

    @property
    def is_active(self) -> bool:
        """True if this process certainly has the agent, by its own clock."""
        return self._is_open and self.lease.is_held

    async def active(self, timeout: float | None) -> int:
        """Wait until this process has the agent, and return the fence."""
        until = None if timeout is None else monotonic() + timeout
        while True:
            seen = self.rests.count
            if self.is_active:
                return self.lease.fence
            left_s = None if until is None else until - monotonic()
            if self._is_over or (left_s is not None and left_s <= 0):
                raise TimeoutError(
                    f"agent {self._agent_state.id!r} is not active here: another process has it, or it was stopped"
                )
            await self._node._engine.changed(self.rests, seen, left_s)

    def is_idle(self) -> bool:
        """Return whether a node that stops need not wait for it."""
        loop = self._node._loop
        if self._is_over or loop is None or loop.is_closed():
            return True
        return not self._leaving and not self._running and not (self._outbox and self._is_open)

    def leave(self) -> None:
        """Begin nothing more, write the finished messages, and give the lease back. From any
        thread.
        """
        loop = self._node._loop
        self._leaving = True
        if loop is not None and not loop.is_closed():
            self.ended_on_loop()

    def ended_on_loop(self) -> LoopCall[None]:
        """Do ``end`` on the node's loop, from whichever."""
        return LoopCall(self._node, self.end())

    async def end(self) -> None:
        """As ``leave``, and wait for it. Running handlers end, or the next holder of the agent
        begins them anew.
        """
        self._leaving = True
        self._moved.set()
        if self._is_over:
            return
        if self._is_open and self._running:
            await asyncio.wait(self._running.values(), timeout=_GOODBYE_S)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait({self._task})
        self._is_over = True
        self._node._waits_for = [one for one in self._node._waits_for if one is not self]
        self._node._at_goodbye = [hook for hook in self._node._at_goodbye if hook != self.leave]
        self.rests.ring()

    async def _stand(self) -> None:
        from tidewire.services.registry import registry_of

        self._task = asyncio.current_task()
        registry, wait_s = registry_of(self._node), 0.0
        while not self._leaving:
            seen = registry.change_counter.count
            try:
                await self.lease.acquire()
                await self._open()
                wait_s = 0.0
                await self._work()
                text = "%(title)s: its lease was lost: another process may have it"
                log.warning("agent.lease_lost", text, **self._names)
            # The process tries again after every error: some process has to have the agent.
            except Exception as error:  # noqa: BLE001
                if not wait_s:
                    text = "%(title)s: it can't go on, and begins anew: %(error)s"
                    log.warning("agent.failed", text, **self._names, error=error)
                wait_s = min(max(_FIRST_WAIT_S, 2 * wait_s), _LONGEST_WAIT_S)
            finally:
                await self._close()
            if wait_s and not self._leaving:
                # A restored link counts as a change.
                await registry.pause(wait_s, seen)

    async def _open(self) -> None:
        """Read the record, and take it over in writing: the previous holder can't write it any
        more.
        """
        agent_state, bucket = self._agent_state, await self._store.bucket()
        entry = await bucket.get(inbox_store.record_key(agent_state.id))
        found: Record = entry.value if entry is not None else inbox_store.new_record(agent_state.id)
        self._revision = 0 if entry is None else entry.revision
        careful = 0 if found["left"] else self._concurrency
        open_, heard = [tuple(one) for one in found["open"]], [tuple(one) for one in found["heard"]]
        most = _limits.AGENT_LOST_ATTEMPTS.default, _limits.AGENT_SENDERS.default
        self._inbox = AgentInbox(found["cursor"], open_, heard, found["sent"], careful, *most)
        self._outbox = {number: (to, data) for number, to, data in found["outbox"]}
        self._outbox_bytes = sum(len(data) for _, data in self._outbox.values())
        self._dead = await self._store.dead_sequences(agent_state.id)
        self._record, self._holding = found, self._holding + 1
        self._record |= {"durable": self.mode, "holder": self._node.name, "fence": self.lease.fence, "left": False}
        self._lost, self._is_open = asyncio.get_running_loop().create_future(), True
        await self.write()
        await agent_state.ref.ask(state_transaction.BEGIN, None)
        self._enter()
        text = "%(title)s: it is active here, with fence %(fence)d"
        log.info("agent.activated", text, **self._names, fence=self.lease.fence)
        self.rests.ring()

    async def _work(self) -> None:
        assert self._lost is not None
        parts = [asyncio.ensure_future(part) for part in (self.lease.lost(), self._pump(), self._flush())]
        try:
            done, _ = await asyncio.wait([*parts, self._lost], return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _close(self) -> None:
        """Write the finished messages, and give the lease back. The record has all messages that
        are sent but not stored yet.
        """
        try:
            for timer in self._later.values():
                timer.cancel()
            self._later.clear()
            tasks = [*self._waiting, *self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.is_active and not (self._lost is not None and self._lost.done()):
                self._record["left"] = True
                with contextlib.suppress(TidewireError):
                    await ended_within(self.write(), _GOODBYE_S)
        finally:
            self._is_open = False
            if self._writing is not None:
                self._writing.cancel()
            for topic in list(self._agent_state.subscriptions):
                self._agent.unsubscribe(topic)
            self._agent_state.directory.remove(self._agent_state)
            self._agent_state.withdraw()
            # A lease that can't be given back ends with its time.
            with contextlib.suppress(TidewireError):
                await self.lease.release()
            self.rests.ring()

    # Messages from the inbox

    async def _pump(self) -> None:
        stream = await self._store.inbox(self._agent_state.id)
        for sequence in self._inbox.open():
            found = [event async for event in stream.read(start=sequence, stop=sequence)]
            if not found:
                text = "%(title)s: message %(sequence)d is gone from its inbox, and is left out"
                log.error("agent.message_lost", text, **self._names, sequence=sequence)
                self._inbox.done(sequence)
            for event in found:
                await self._take(event)
        async for event in stream.read(start=self._inbox.record()[0] + 1, follow=True):
            while self._inbox.count() >= _limits.AGENT_OPEN.default:
                self._moved.clear()
                await self._moved.wait()
            await self._take(event)
            self._tidy(stream)

    async def _take(self, event: Event) -> None:
        """Begin a message as soon as there is a place."""
        while len(self._running) >= self._concurrency or len(self._outbox) >= _limits.AGENT_OUTBOX.default:
            self._moved.clear()
            await self._moved.wait()
        if self._leaving:
            return
        verdict, attempt = self._inbox.begin(event.sequence, *inbox_store.origin(event))
        if verdict in ("over", "copy"):
            self._write_soon()
            return
        if verdict == "dead":
            work = self._given_up(event, attempt, "lost", None)
        else:
            work = self._handle(event, attempt, verdict == "write")
        task = self._running[event.sequence] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(functools.partial(self._ran, event.sequence))

    def _ran(self, sequence: int, task: asyncio.Task[None]) -> None:
        if self._running.get(sequence) is task:
            del self._running[sequence]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._lose(error)
        self._moved.set()
        self.rests.ring()

    async def _handle(self, event: Event, attempt: int, is_written: bool) -> None:
        inbox, arrival = self._inbox, Arrival(event.sequence)
        try:
            if is_written:
                await self.write()
            message = form.from_msgpack(event.payload)
        except InvalidArgument as error:
            await self._given_up(event, attempt, "malformed", error)
            return
        message.delivery = attempt
        self.arrivals[id(message)] = arrival
        try:
            await self._agent_state.ref.ask(message, None, message.priority)
        except MessageExpired as error:
            await self._failed(event, is_written, "expired", error)
        except BaseException as error:
            if arrival.error is None:
                # It is the actor that has ended, or the lease: as if the message had not come.
                inbox.interrupted(event.sequence, is_written)
                self._lose(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
            else:
                await self._failed(event, is_written, "failed", arrival.error)
        finally:
            self.arrivals.pop(id(message), None)

    async def _failed(self, event: Event, is_written: bool, reason: str, error: BaseException) -> None:
        agent_state = self._agent_state
        retries = agent_state.retry.limit if reason == "failed" else 0
        is_dead, attempts = self._inbox.failed(event.sequence, is_written, retries)
        if is_dead:
            await self._given_up(event, attempts, reason, error)
            return
        agent_state.retried += 1
        text, sequence = "%(title)s: attempt %(attempt)d at message %(sequence)d failed: %(error)r", event.sequence
        log.debug("agent.message_retried", text, **self._names, attempt=attempts, sequence=sequence, error=error)
        again = asyncio.get_running_loop().call_later(agent_state.retry.wait_s(attempts), self._again, event)
        self._later[event.sequence] = again
        self._write_soon()

    def _again(self, event: Event) -> None:
        self._later.pop(event.sequence, None)
        task = asyncio.get_running_loop().create_task(self._take(event))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _given_up(self, event: Event, attempts: int, reason: str, error: BaseException | None) -> None:
        """Write the dead letter, and then that the message is over."""
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
        holding = self._holding
        await self._call_until_stored(lambda: bucket.put(inbox_store.dead_key(agent_state.id, event.sequence), letter))
        if holding != self._holding:
            return
        text, sequence = "%(title)s: message %(sequence)d is a dead letter: %(reason)s: %(error)s", event.sequence
        log.error("agent.dead_letter", text, **self._names, sequence=sequence, reason=reason, error=error_text)
        self._dead.append(event.sequence)
        while len(self._dead) > _limits.AGENT_DEAD_LETTERS.default:
            await bucket.delete(inbox_store.dead_key(agent_state.id, self._dead.pop(0)), purge=True)
        self._inbox.done(event.sequence)
        self._record["dead"] += 1
        await self.write()

    def _tidy(self, stream: Stream) -> None:
        """Remove messages that are long over, many at once."""
        history = _limits.AGENT_HISTORY.default
        needed = self._inbox.needed_from()
        if needed - self._purged_to > 2 * history:
            self._purged_to = needed - history
            purge = asyncio.ensure_future(stream.purge(before=self._purged_to))
            purge.add_done_callback(lambda task: None if task.cancelled() else task.exception())

    # A handler's turn

    def begins(self, given: Any) -> StateTransaction:
        """Return the turn of a handler that begins now, for a message as it was given to the actor.

        Raises:
            LeaseLost: if another process may have the agent.
        """
        self._check(self._holding)
        return StateTransaction(self, self._holding, self.arrivals.get(id(given)))

    def _check(self, holding: int) -> None:
        if not self.is_active or holding != self._holding:
            raise LeaseLost(
                f"agent {self._agent_state.id!r}: this process does not have it: another may; send durably, or ask again"
            )

    def restore(self) -> None:
        """Give the agent the state that was written last, or the one it was registered with."""
        if self._load is not None:
            written = self._record.get("state")
            self.target.state = self._load(self._initial if written is None else written)

    async def ended(self, turn: StateTransaction) -> None:
        """Write the results of a handler: the state, the finished message, and the sent messages.

        Raises:
            LeaseLost: if another process may have the agent: nothing is written then.
            PayloadTooLarge: if the state or a sent message is too long.
        """
        self._check(turn.holding)
        record = self._record
        if self._load is None:
            if turn.arrival is not None:
                self._inbox.done(turn.arrival.sequence)
                record["handled"] += 1
                self._write_soon()
            return
        state = state_transaction.encoded(self.target.state)
        most = _limits.AGENT_STATE_BYTES.default
        sends = sum(len(data) for _, data in turn.sends)
        for what, size in (
            ("its state", len(state)),
            ("what was sent and is not stored yet", self._outbox_bytes + sends),
        ):
            if size > most:
                raise PayloadTooLarge(
                    f"agent {self._agent_state.id!r}: {what} takes {size:,} bytes, and {most:,} are allowed: put it into a bucket, and keep the key"
                )
        if turn.arrival is None and not turn.sends and state == record["state"]:
            return
        for to, data in turn.sends:
            self._outbox[self._inbox.send()] = to, data
        self._outbox_bytes += sends
        record["state"] = state
        if turn.arrival is not None:
            self._inbox.done(turn.arrival.sequence)
            record["handled"] += 1
        await self.write()

    # Its record

    def write(self) -> Awaitable[None]:
        """Write the record as it is now, with whatever else comes until that begins.

        Raises:
            LeaseLost: if another process has written it.
        """
        return asyncio.shield(self._write_soon())

    def _write_soon(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._written is None:
            self._written = loop.create_future()
            # Nobody may wait for it.
            self._written.add_done_callback(lambda written: written.exception())
        if self._writing is None:
            self._writing = loop.create_task(self._write_all())
            self._writing.add_done_callback(self._wrote)
        return self._written

    async def _write_all(self) -> None:
        while self._written is not None:
            written, self._written = self._written, None
            error: BaseException = self._not_written()
            try:
                await self._write_now()
                written.set_result(None)
            except TidewireError as raised:
                error = raised
                self._lose(error)
            finally:
                if not written.done():
                    written.set_exception(error)
        # At once: what is to be written from here on has nobody to write it.
        self._writing = None

    def _wrote(self, task: asyncio.Task[None]) -> None:
        """Give up the changes to write, if the write has not ended."""
        if not task.cancelled() and task.exception() is None:
            return
        self._writing, written, self._written = None, self._written, None
        if written is not None:
            written.set_exception(self._not_written())
        if not task.cancelled() and (error := task.exception()) is not None:
            self._lose(error)

    def _not_written(self) -> LeaseLost:
        return LeaseLost(f"agent {self._agent_state.id!r}: its record was not written: another process may have it")

    async def _write_now(self) -> None:
        bucket, key = await self._store.bucket(), inbox_store.record_key(self._agent_state.id)
        record = self._record
        cursor, open_, heard, sent = self._inbox.record()
        record |= {
            "commit": record["commit"] + 1,
            "cursor": cursor,
            "open": open_,
            "heard": heard,
            "sent": sent,
            "outbox": [(number, to, data) for number, (to, data) in self._outbox.items()],
            "time_us": inbox_store.now_us(),
        }
        saved = dict(record)

        async def put() -> None:
            try:
                self._revision = await bucket.update(key, saved, revision=self._revision)
            except RevisionConflict:
                found = await bucket.get(key)
                mine = saved["fence"], saved["commit"]
                if found is None or (found.value["fence"], found.value["commit"]) != mine:
                    raise LeaseLost(f"agent {self._agent_state.id!r}: another process has written its record") from None
                # It was stored, and the answer was lost.
                self._revision = found.revision

        await self._call_until_stored(put)
        self._sent_to = sent
        if self._outbox:
            self._moved.set()

    async def _call_until_stored(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Call the storage backend until it answers, for as long as the lease is held."""
        wait_s = 0.0
        while True:
            try:
                await call()
            except (LeaseLost, *_FINAL):
                raise
            except TidewireError as error:
                if not self.is_active:
                    raise LeaseLost(f"agent {self._agent_state.id!r}: its home can't be reached: {error}") from error
                wait_s = min(max(_FIRST_WAIT_S, 2 * wait_s), _LONGEST_WAIT_S)
                await asyncio.sleep(wait_s)
            else:
                return

    def _lose(self, error: BaseException) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_exception(error)
            self._lost.exception()

    # Messages of its handlers

    async def _flush(self) -> None:
        """Store the sent messages in the inboxes of their recipients, in order for each."""
        wait_s = 0.0
        sender = f"{inbox_store.token(self._agent_state.id)}.{self._record['epoch']}"
        while True:
            refused: set[str] = set()
            for number, (to, data) in list(self._outbox.items()):
                if number > self._sent_to or to in refused:
                    continue
                headers = {inbox_store.SENDER: sender, inbox_store.NUMBER: str(number)}
                try:
                    await self._store.post(to, data, f"{sender}.{number}", headers)
                except TidewireError as error:
                    if not refused and not wait_s:
                        text = "%(title)s: messages to %(to)r wait: %(error)s"
                        log.warning("agent.outbox_waits", text, **self._names, to=to, error=error)
                    refused.add(to)
                else:
                    del self._outbox[number]
                    self._outbox_bytes -= len(data)
                    self._moved.set()
                    self.rests.ring()
            if refused:
                wait_s = min(max(_FIRST_WAIT_S, 2 * wait_s), _LONGEST_WAIT_S)
                await asyncio.sleep(wait_s)
                continue
            wait_s = 0.0
            while not any(number <= self._sent_to for number in self._outbox):
                self._moved.clear()
                await self._moved.wait()
