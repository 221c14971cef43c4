"""Receipt of a message: its outcome, for the sender."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Literal

from tidewire._runtime.blocking_portal import refuse_loop
from tidewire._runtime.process_state import lock

if TYPE_CHECKING:
    from tidewire.agents.agent_state import AgentState

State = Literal["accepted", "delivered", "handled", "failed", "expired"]
_FINAL = frozenset(("handled", "failed", "expired"))
_CHECK_MIN_S, _CHECK_MAX_S = 0.05, 1.0
_state_lock = lock()


class Receipt:
    """Delivery of one message to one recipient.

    Attributes:
        recipient: Id of the recipient.
        state: "accepted" (in the mailbox), "delivered" (the handler has begun), then "handled",
            "failed" or "expired".
        times: Time of each state, in UTC. Each retry delivers the message again, and sets the time
            of "delivered" again.
        error: Error of the handler. None if no handler failed: the message was dropped, or the
            agent ended before.
    """

    __slots__ = ("_agent_state", "_final", "error", "failures", "recipient", "state", "times")

    def __init__(self, recipient: str, agent_state: AgentState | None = None) -> None:
        self.recipient = recipient
        self.state: State = "accepted"
        self.times: dict[str, datetime] = {}
        self.error: BaseException | None = None
        # Failed attempts of its handler, counted by its agent.
        self.failures = 0
        self._final: Future[State] = Future()
        self._agent_state = agent_state

    async def wait(self, timeout: float | None = None) -> State:
        """Wait for the final state. Cancelling the wait does not affect the message.

        Raises:
            TimeoutError: if there is no final state within ``timeout`` seconds.
        """
        final = asyncio.wrap_future(self._final)
        agent_state = self._agent_state
        with nullcontext() if agent_state is None else agent_state.settling_dead_letters():
            for pause_s in self._pauses(timeout):
                done, _ = await asyncio.wait([final], timeout=pause_s)
                if done:
                    return final.result()
        raise self._timeout_error(timeout)

    def wait_blocking(self, timeout: float | None = None) -> State:
        """Block this thread until the final state. Raises the errors of ``wait``."""
        refuse_loop("wait_blocking", "await wait() instead")
        agent_state = self._agent_state
        engine = None if agent_state is None else agent_state.engine
        if agent_state is None or engine is None:
            try:
                return self._final.result(timeout)
            except TimeoutError:
                raise self._timeout_error(timeout) from None
        change_counter = engine.change_counter
        # Dead letters and the final state ring the same counter, so that one wait is enough.
        self._final.add_done_callback(lambda _: change_counter.ring())
        deadline, pause_s = None if timeout is None else monotonic() + timeout, _CHECK_MIN_S
        while True:
            seen = change_counter.count
            agent_state.settle_receipts()
            if self._final.done():
                return self._final.result()
            left_s = pause_s if deadline is None else deadline - monotonic()
            if left_s <= 0.0:
                raise self._timeout_error(timeout)
            if not engine.changed(change_counter, seen, min(pause_s, left_s)).wait():
                pause_s = min(pause_s * 2, _CHECK_MAX_S)

    def mark(self, state: State, error: BaseException | None = None) -> None:
        """Set the state, unless it is final already."""
        with _state_lock:
            if self.state in _FINAL:
                return
            self.state = state
            self.error = error
            self.times[state] = datetime.now(UTC)
        if state in _FINAL:
            # A receipt that the program stores must not keep the agent alive.
            self._agent_state = None
            self._final.set_result(state)

    def _pauses(self, timeout: float | None) -> Iterator[float]:
        """Yield waits that double. Between them, check for an end without a notification: the
        agent was abandoned, or no loop runs that settles receipts of dead letters.
        """
        deadline = None if timeout is None else monotonic() + timeout
        pause_s = _CHECK_MIN_S
        while True:
            left_s = pause_s if deadline is None else deadline - monotonic()
            yield max(min(pause_s, left_s), 0.0)
            agent_state = self._agent_state
            if agent_state is not None:
                agent_state.settle_receipts()
            if left_s <= pause_s and deadline is not None and not self._final.done():
                return
            pause_s = min(pause_s * 2, _CHECK_MAX_S)

    def _timeout_error(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"the message to {self.recipient!r} is {self.state} after {timeout} s")

    def __repr__(self) -> str:
        return f"<Receipt to {self.recipient!r}: {self.state}>"
