"""What became of a message, for senders who want to know."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from datetime import datetime, timezone
from typing import Literal

from tidewire._current import running_loop
from tidewire.errors import InvalidArgument

State = Literal["accepted", "delivered", "handled", "failed", "expired"]
_FINAL = frozenset(("handled", "failed", "expired"))


class Receipt:
    """The way of one message to one recipient.

    Attributes:
        recipient: The id of the agent that it was sent to.
        state: "accepted" (in its mailbox), "delivered" (its handler has begun), then "handled", "failed" or "expired".
        times: When each state was reached, in UTC. A message that is tried again is delivered again; its latest time counts.
        error: The handler's error, if it failed.
    """

    __slots__ = ("_final", "error", "recipient", "state", "times")

    def __init__(self, recipient: str) -> None:
        self.recipient = recipient
        self.state: State = "accepted"
        self.times: dict[str, datetime] = {}
        self.error: BaseException | None = None
        self._final: Future[State] = Future()

    async def wait(self, timeout: float | None = None) -> State:
        """Wait for the final state. Cancelling the wait changes nothing for the message.

        Raises:
            TimeoutError: if it is not reached within ``timeout`` seconds.
        """
        waiting = asyncio.shield(asyncio.wrap_future(self._final))
        try:
            return await asyncio.wait_for(waiting, timeout)
        except asyncio.TimeoutError as error:
            raise TimeoutError(f"the message to {self.recipient!r} is {self.state} after {timeout} s") from error

    def wait_blocking(self, timeout: float | None = None) -> State:
        """Block this thread until the final state. Raises as ``wait`` does."""
        if running_loop() is not None:
            raise InvalidArgument("wait_blocking would block this thread's event loop: await wait() instead")
        from concurrent.futures import TimeoutError as TimedOut

        try:
            return self._final.result(timeout)
        except TimedOut as error:
            raise TimeoutError(f"the message to {self.recipient!r} is {self.state} after {timeout} s") from error

    def mark(self, state: State, error: BaseException | None = None) -> None:
        """Note a state. The first final one counts."""
        if self._final.done():
            return
        self.state = state
        self.error = error
        self.times[state] = datetime.now(timezone.utc)
        if state in _FINAL:
            self._final.set_result(state)

    def __repr__(self) -> str:
        return f"<Receipt to {self.recipient!r}: {self.state}>"
