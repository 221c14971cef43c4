"""Public state of a command."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

SERVICE = "tidewire-commands"
"""Name of the service by which a hub offers its commands to nodes of all languages."""
STAGES = ("queued", "running", "succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class CommandInfo:
    """State of a command.

    Attributes:
        id: Its id.
        service: Name of the service that runs it.
        command: Name of the command.
        stage: ``queued``, ``running``, ``succeeded``, ``failed`` or ``cancelled``.
        attempt: The newest attempt, from 1; 0 if there was none.
        retries: Most retries after the first attempt.
        is_cancelling: True if its worker received a cancellation.
        key: Key of the command, or None.
        priority: Priority in the queue: ``urgent``, ``high``, ``normal`` or ``low``.
        caller: Name of the node that started it.
        worker: Name of the node that runs its newest attempt, or None.
        created: Time of its start.
        began: Time at which its newest attempt began, or None.
        ended: Time of its end, or None.
        fraction: Progress of its newest attempt, from 0 to 1.
        note: Note of the newest attempt.
        error: The exception of the newest failed attempt, in one line; empty if none has failed.
        traceback: The traceback of ``error``.
        trace: Trace id of its start, or None.
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
