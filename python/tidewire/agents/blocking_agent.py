"""The blocking form of an agent, for plain threads and plain handlers."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from tidewire._current import running_loop
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire.agents.agent import Agent


class AgentSync:
    """Blocking calls of one agent, at ``agent.sync``. Not for the thread of an event loop."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def send(self, payload: Any, to: Any = None, **options: Any) -> Any:
        """Send a message, and block while the mailbox is full. Options and errors as for
        ``Agent.send``.
        """
        return _block(lambda: self._agent.send(payload, to, **options))

    def share(self, context: Any, to: Any = None, **options: Any) -> Any:
        """Hand shared state to others, and block while a mailbox is full. Options and errors as for
        ``Agent.share``.
        """
        return _block(lambda: self._agent.share(context, to, **options))

    def request(self, payload: Any, to: Any = None, **options: Any) -> Any:
        """Ask another agent, and block until it replies. Options and errors as for
        ``Agent.request``.
        """
        return _block(lambda: self._agent.request(payload, to, **options))

    def stop(self, drain: bool = True, timeout: float | EllipsisType | None = ...) -> Any:
        """Stop it, and block until it has stopped or the time is up."""
        desk = self._agent._desk
        if desk.durable is not None:
            desk.durable.end_blocking()
        ledger = _block(lambda: desk.ref.stop(drain, timeout))
        desk.close()
        return ledger


def _block(call: Callable[[], Any]) -> Any:
    if running_loop() is not None:
        raise InvalidArgument("agent.sync would block this thread's event loop: await the same call without .sync")
    return call().wait()
