"""Progress of commands: the reports of a command, and the values for its followers."""

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
    """How far a command is; the newest one is kept.

    Attributes:
        fraction: From 0 to 1.
        note: Note of the report.
        attempt: Which attempt it is of, from 1.
        time: When it was reported, by the clock of the worker.
    """

    fraction: float
    note: str
    attempt: int
    time: datetime


class Progress:
    """Progress reports of a command: ``await progress(0.4, "half")``, or without ``await`` in a
    plain function.

    Attributes:
        id: The id of the command; the same in each attempt, so that what it does elsewhere can be
            done once.
        attempt: Which attempt this is, from 1.
        key: The key that its caller has said, or None.
    """

    __slots__ = ("_report", "_running", "attempt", "id", "key")

    def __init__(
        self, id: str, attempt: int, key: str | None, running: InboundCall, report: Callable[[float, str], None]
    ) -> None:
        self.id = id
        self.attempt = attempt
        self.key = key
        self._running = running
        self._report = report

    def __call__(self, fraction: float, note: str = "") -> Reported:
        """Report how far it is. Nothing is waited for: of reports that come quickly one after the
        other the newest is stored.

        Args:
            fraction: From 0 to 1.
            note: Text for people, at most 1,024 letters.

        Raises:
            InvalidArgument: if an argument is not allowed.
            CancelledError: if the command is to end: it was cancelled, takes too long, has gone to
                another worker, or its service stops.
        """
        check_report(fraction, note)
        if self._running.cancelled:
            raise asyncio.CancelledError(f"command {self.id}: it is to end")
        self._report(float(fraction), note)
        return Reported()

    def __repr__(self) -> str:
        return f"<Progress of command {self.id}, attempt {self.attempt}>"


class Reported:
    """Result of a report; awaiting it lets others of the event loop go on."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield
