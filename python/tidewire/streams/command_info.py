"""State of a command, as users see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

SERVICE = "tidewire-commands"
"""The name under which a hub serves its commands to nodes of all languages."""
STAGES = ("queued", "running", "succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class CommandInfo:
    """State of a command.

    Attributes:
        id: Its id.
        service: The service that does it.
        command: Which of its commands it is.
        stage: ``queued``, ``running``, ``succeeded``, ``failed`` or ``cancelled``.
        attempt: The newest attempt, from 1; 0 if there was none.
        retries: How often it is tried again.
        is_cancelling: True if its worker was asked to end it.
        key: Subject of the command, or None.
        priority: Which go first: ``urgent``, ``high``, ``normal`` or ``low``.
        caller: The node that has started it.
        worker: The node that has its newest attempt, or None.
        created: When it was started.
        began: When its newest attempt began, or None.
        ended: When it was over, or None.
        fraction: How far its newest attempt is, from 0 to 1.
        note: Note of the newest attempt.
        error: The exception of the newest failed attempt, in a line; empty if none has failed.
        traceback: The traceback of that error.
        trace: Id of the trace that its start belongs to, or None.
    """

    id: str
    service: str
    command: str
    stage: str
    attempt: int
    retries: int
    is_cancelling: bool
    key: str | None
    priority: str
    caller: str
    worker: str | None
    created: datetime
    began: datetime | None
    ended: datetime | None
    fraction: float
    note: str
    error: str
    traceback: str
    trace: str | None = None

    @property
    def is_over(self) -> bool:
        """True if the command has ended."""
        return self.stage in ("succeeded", "failed", "cancelled")
