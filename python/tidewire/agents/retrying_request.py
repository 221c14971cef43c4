"""Requests with retries."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

import msgspec

from tidewire._binding import ChangeCounter
from tidewire._runtime import steps
from tidewire.errors import TidewireError

if TYPE_CHECKING:
    from tidewire._binding import Engine, Pending
    from tidewire._runtime.steps import Steps
    from tidewire.agents.agent_state import AgentState
    from tidewire.agents.message import Message
    from tidewire.agents.retry import Retry


class RetryingRequest(Coroutine[Any, Any, Any]):
    """A request that is retried after retryable errors."""

    __slots__ = ("__weakref__", "_engine", "_message", "_pending", "_retry", "_steps", "_target", "_timeout")

    def __init__(
        self, engine: Engine, pending: Pending | None, target: AgentState, message: Message, timeout: Any, retry: Retry
    ) -> None:
        self._engine = engine
        self._pending = pending
        self._target = target
        self._message = message
        self._timeout = timeout
        self._retry = retry
        self._steps: Generator[Any, Any, Any] | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        self._steps = request = steps.awaiting(self._attempts())
        return request

    # The coroutine protocol, so that ``asyncio.create_task`` accepts it.

    def send(self, value: Any) -> Any:
        """Resume, as a coroutine."""
        return self._iterator().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error at the await, as a coroutine."""
        return self._iterator().throw(*error)

    def close(self) -> None:
        """Cancel the request, as a coroutine."""
        if self._pending is not None:
            self._pending.cancel()
        self._iterator().close()

    def _iterator(self) -> Generator[Any, Any, Any]:
        return self.__await__() if self._steps is None else self._steps

    def wait(self) -> Any:
        return steps.blocking(self._attempts())

    def _attempts(self) -> Steps[Any]:
        pending = self._pending
        while True:
            try:
                return (yield self._retry_with_copy() if pending is None else pending)
            except Exception as error:
                is_retryable = not isinstance(error, TidewireError) or error.retryable
                if not is_retryable or self._message.delivery > self._retry.limit:
                    raise
            pending = None
            yield self._engine.changed(ChangeCounter(), 0, self._retry.wait_s(self._message.delivery))

    def _retry_with_copy(self) -> Pending:
        """Send a copy: the handler of the previous attempt may still use the message."""
        previous = self._message
        message = msgspec.structs.replace(previous, delivery=previous.delivery + 1, context=None, given_id=previous.id)
        self._target.retried += 1
        self._message = message
        self._pending = self._target.ref.ask(message, self._timeout, message.priority)
        return self._pending
