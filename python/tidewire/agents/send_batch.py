"""Several sends at once, with the outcome of each."""

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
    """Several sends; awaiting waits for all of them. One that fails does not affect the others; its
    error is raised at the end.
    """

    def __init__(self) -> None:
        self.pending_sends: list[tuple[AgentState, Message, Pending]] = []
        self.errors: list[TidewireError] = []
        self.result: Any = None

    def add(self, agent_state: AgentState, message: Message) -> bool:
        """Begin to send to one recipient. Answers whether it was not refused at once."""
        if message.receipt is not None:
            message.receipt.mark("accepted")
            agent_state.receipts.add(message.receipt)
        try:
            pending = agent_state.ref.send(message, message.priority)
        except TidewireError as error:
            self._refused(agent_state, message, error)
            return False
        self.pending_sends.append((agent_state, message, pending))
        if pending.done():
            _note(agent_state, message, pending.result())
        return True

    def _steps(self) -> Steps[Any]:
        for at, (agent_state, message, pending) in enumerate(self.pending_sends):
            try:
                _note(agent_state, message, (yield pending))
            except TidewireError as error:
                self._refused(agent_state, message, error)
            except BaseException:
                # A cancelled wait cancels the messages that still wait for capacity.
                for later, one, waiting in self.pending_sends[at:]:
                    if waiting.cancel() or waiting.cancelled():
                        later.failed(one)
                raise
        if self.errors:
            raise self.errors[0]
        return self.result

    def _refused(self, agent_state: AgentState, message: Message, error: TidewireError) -> None:
        self.errors.append(error)
        agent_state.failed(message, error)


def _note(agent_state: AgentState, message: Message, accepted: Any) -> None:
    """A mailbox that drops the new message answers False."""
    if accepted is False:
        agent_state.failed(message)
