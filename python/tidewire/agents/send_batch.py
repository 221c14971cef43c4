"""Concurrent sends of one message to several recipients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewire._runtime.steps import Procedure
from tidewire.errors import TidewireError

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire._runtime.steps import Steps
    from tidewire.agents.agent_state import AgentState
    from tidewire.agents.message import Message


class SendBatch(Procedure[Any]):
    """Several sends. Awaiting waits for all of them. A failed send does not affect the others; its
    error is raised at the end.
    """

    def __init__(self) -> None:
        self.pending_sends: list[tuple[AgentState, Message, Pending]] = []
        self.errors: list[TidewireError] = []
        self.result: Any = None

    def add(self, agent_state: AgentState, message: Message) -> bool:
        """Start a send to one recipient. Return False if it is refused at once."""
        if message.receipt is not None:
            message.receipt.mark("accepted")
            agent_state.receipts.add(message.receipt)
        try:
            pending = agent_state.ref.send(message, message.priority)
        except TidewireError as error:
            self._refuse(agent_state, message, error)
            return False
        self.pending_sends.append((agent_state, message, pending))
        if pending.done():
            _check_accepted(agent_state, message, pending.result())
        return True

    def _steps(self) -> Steps[Any]:
        for at, (agent_state, message, pending) in enumerate(self.pending_sends):
            try:
                _check_accepted(agent_state, message, (yield pending))
            except TidewireError as error:
                self._refuse(agent_state, message, error)
            except BaseException:
                # A cancelled wait cancels the messages that still wait for capacity.
                for later, one, waiting in self.pending_sends[at:]:
                    if waiting.cancel() or waiting.cancelled():
                        later.failed(one)
                raise
        if self.errors:
            raise self.errors[0]
        return self.result

    def _refuse(self, agent_state: AgentState, message: Message, error: TidewireError) -> None:
        self.errors.append(error)
        agent_state.failed(message, error)


def _check_accepted(agent_state: AgentState, message: Message, accepted: Any) -> None:
    """Mark a message as failed if the mailbox has dropped it (False)."""
    if accepted is False:
        agent_state.failed(message)
