"""Receipts: the outcome of a message, for its sender."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimedOut
from datetime import datetime, timezone
from time import monotonic
from typing import Literal

from tidewire import _forking
from tidewire._current import running_loop
from tidewire.errors import InvalidArgument

State = Literal["accepted", "delivered", "handled", "failed", "expired"]
_FINAL = frozenset(("handled", "failed", "expired"))
_LOOK_MIN_S, _LOOK_MAX_S = 0.05, 1.0
_marking = _forking.lock()


class Receipt:
    """The way of one message to one recipient.

    Attributes:
        recipient: The id of the agent that it was sent to.
        state: "accepted" (in its mailbox), "delivered" (its handler has begun), then "handled", "failed" or "expired".
        times: When each state was reached, in UTC. A message that is tried again is delivered again; its latest time counts.
        error: The handler's error, if it failed. None if no handler failed: it was dropped, or the agent ended before it.
    """

    __slots__ = ("_final", "_look", "error", "failures", "recipient", "state", "times")

    def __init__(self, recipient: str, look: Callable[[], object] | None = None) -> None:
        self.recipient = recipient
        self.state: State = "accepted"
        self.times: dict[str, datetime] = {}
        self.error: BaseException | None = None
        # Attempts of its handler that failed, for its agent.
        self.failures = 0
        self._final: Future[State] = Future()
        self._look = look

    async def wait(self, timeout: float | None = None) -> State:
        """Wait for the final state. Cancelling the wait changes nothing for the message.

        Raises:
            TimeoutError: if it is not reached within ``timeout`` seconds.
        """
        waiting = asyncio.wrap_future(self._final)
        for pause_s in self._pauses(timeout):
            done, _ = await asyncio.wait([waiting], timeout=pause_s)
            if done:
                return waiting.result()
        raise self._too_late(timeout)

    def wait_blocking(self, timeout: float | None = None) -> State:
        """Block this thread until the final state. Raises as ``wait`` does."""
        if running_loop() is not None:
            raise InvalidArgument("wait_blocking would block this thread's event loop: await wait() instead")
        for pause_s in self._pauses(timeout):
            try:
                return self._final.result(pause_s)
            except TimedOut:
                continue
        raise self._too_late(timeout)

    def mark(self, state: State, error: BaseException | None = None) -> None:
        """Note a state. The first final one counts."""
        with _marking:
            if self.state in _FINAL:
                return
            self.state = state
            self.error = error
            self.times[state] = datetime.now(timezone.utc)
        if state in _FINAL:
            # A receipt that is kept for long shall not keep the agent.
            self._look = None
            self._final.set_result(state)

    def _pauses(self, timeout: float | None) -> Iterator[float]:
        """Look, between waits that get longer, for an end that nobody tells: the message was dropped, or its agent abandoned."""
        deadline = None if timeout is None else monotonic() + timeout
        pause_s = _LOOK_MIN_S
        while True:
            left_s = pause_s if deadline is None else deadline - monotonic()
            yield max(min(pause_s, left_s), 0.0)
            look = self._look
            if look is not None:
                look()
            if left_s <= pause_s and deadline is not None and not self._final.done():
                return
            pause_s = min(pause_s * 2, _LOOK_MAX_S)

    def _too_late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"the message to {self.recipient!r} is {self.state} after {timeout} s")

    def __repr__(self) -> str:
        return f"<Receipt to {self.recipient!r}: {self.state}>"
