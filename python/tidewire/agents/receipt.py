"""Receipts: the outcome of a message, for its sender."""

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
_LOOK_MIN_S, _LOOK_MAX_S = 0.05, 1.0
_marking = lock()


class Receipt:
    """Delivery of one message to one recipient.

    Attributes:
        recipient: The id of the agent that it was sent to.
        state: "accepted" (in its mailbox), "delivered" (its handler has begun), then "handled",
            "failed" or "expired".
        times: When each state was reached, in UTC. A message that is tried again is delivered
            again; its latest time counts.
        error: The handler's error, if it failed. None if no handler failed: it was dropped, or the
            agent ended before it.
    """

    __slots__ = ("_agent_state", "_final", "error", "failures", "recipient", "state", "times")

    def __init__(self, recipient: str, agent_state: AgentState | None = None) -> None:
        self.recipient = recipient
        self.state: State = "accepted"
        self.times: dict[str, datetime] = {}
        self.error: BaseException | None = None
        # Attempts of its handler that failed, for its agent.
        self.failures = 0
        self._final: Future[State] = Future()
        self._agent_state = agent_state

    async def wait(self, timeout: float | None = None) -> State:
        """Wait for the final state. Cancelling the wait changes nothing for the message.

        Raises:
            TimeoutError: if it is not reached within ``timeout`` seconds.
        """
        waiting = asyncio.wrap_future(self._final)
        agent_state = self._agent_state
        with nullcontext() if agent_state is None else agent_state.followed():
            for pause_s in self._pauses(timeout):
                done, _ = await asyncio.wait([waiting], timeout=pause_s)
                if done:
                    return waiting.result()
        raise self._too_late(timeout)

    def wait_blocking(self, timeout: float | None = None) -> State:
        """Block this thread until the final state. Raises as ``wait`` does."""
        refuse_loop("wait_blocking", "await wait() instead")
        agent_state = self._agent_state
        engine = None if agent_state is None else agent_state.engine
        if agent_state is None or engine is None:
            try:
                return self._final.result(timeout)
            except TimeoutError:
                raise self._too_late(timeout) from None
        change_counter = engine.change_counter
        # The signal for dead letters also serves the final state, so that one wait is enough.
        self._final.add_done_callback(lambda _: change_counter.ring())
        deadline, pause_s = None if timeout is None else monotonic() + timeout, _LOOK_MIN_S
        while True:
            seen = change_counter.count
            agent_state.look()
            if self._final.done():
                return self._final.result()
            left_s = pause_s if deadline is None else deadline - monotonic()
            if left_s <= 0.0:
                raise self._too_late(timeout)
            if not engine.changed(change_counter, seen, min(pause_s, left_s)).wait():
                pause_s = min(pause_s * 2, _LOOK_MAX_S)

    def mark(self, state: State, error: BaseException | None = None) -> None:
        """Note a state. The first final one counts."""
        with _marking:
            if self.state in _FINAL:
                return
            self.state = state
            self.error = error
            self.times[state] = datetime.now(UTC)
        if state in _FINAL:
            # A receipt that is kept for long shall not keep the agent.
            self._agent_state = None
            self._final.set_result(state)

    def _pauses(self, timeout: float | None) -> Iterator[float]:
        """Look, between waits that get longer, for an end without a notification: the agent was
        abandoned, or no loop runs to notify of dead letters.
        """
        deadline = None if timeout is None else monotonic() + timeout
        pause_s = _LOOK_MIN_S
        while True:
            left_s = pause_s if deadline is None else deadline - monotonic()
            yield max(min(pause_s, left_s), 0.0)
            agent_state = self._agent_state
            if agent_state is not None:
                agent_state.look()
            if left_s <= pause_s and deadline is not None and not self._final.done():
                return
            pause_s = min(pause_s * 2, _LOOK_MAX_S)

    def _too_late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"the message to {self.recipient!r} is {self.state} after {timeout} s")

    def __repr__(self) -> str:
        return f"<Receipt to {self.recipient!r}: {self.state}>"
