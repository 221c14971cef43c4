"""Progress of commands: reports of workers, and values for observers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidewire._runtime.task import check_report

if TYPE_CHECKING:
    from tidewire.services.instances.inbound_call import InboundCall


@dataclass(frozen=True)
class CommandProgress:
    """Progress of a command. Only the newest report is stored.

    Attributes:
        fraction: Progress from 0 to 1.
        note: Note of the report.
        attempt: Number of the attempt, from 1.
        time: Time of the report, on the clock of the worker.
    """

    fraction: float
    note: str
    attempt: int
    time: datetime


class Progress:
    """Progress reports of a command: ``await progress(0.4, "half")``, or without ``await`` in a
    plain function.

    Attributes:
        id: The id of the command. It is the same in each attempt: use it as an idempotency key for
            effects in other systems.
        attempt: Number of this attempt, from 1.
        key: The key from the caller of ``start``, or None.
    """

    __slots__ = ("_call", "_report", "attempt", "id", "key")

    def __init__(
        self, id: str, attempt: int, key: str | None, running: InboundCall, report: Callable[[float, str], None]
    ) -> None:
        self.id = id
        self.attempt = attempt
        self.key = key
        self._call = running
        self._report = report

    def __call__(self, fraction: float, note: str = "") -> Reported:
        """Report the progress without waiting. Of reports in quick succession the newest is
        stored.

        Args:
            fraction: Progress from 0 to 1.
            note: Text for people, at most 1,024 characters.

        Raises:
            InvalidArgument: if an argument is not allowed.
            CancelledError: if the attempt must end: the command was cancelled, its timeout has
                passed, another worker has it, or its service stops.
        """
        check_report(fraction, note)
        if self._call.cancelled:
            raise asyncio.CancelledError(f"command {self.id}: it is to end")
        self._report(float(fraction), note)
        return Reported()

    def __repr__(self) -> str:
        return f"<Progress of command {self.id}, attempt {self.attempt}>"


class Reported:
    """Result of a report. Awaiting it yields once to the event loop."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield
