"""One attempt at a command: its record, its progress and the reason of an early end."""

from __future__ import annotations

import asyncio
from typing import Any

from tidewire.services.instances.inbound_call import InboundCall
from tidewire.streams.lease import Lease
from tidewire.values import encode


class Attempt:
    """One attempt at a command, while it is under way.

    Attributes:
        record: The record, as it was when the attempt began.
        number: Which attempt it is.
        why: Why it is to end early: "cancelled", "timeout", "cut" or "lost"; empty as long as it is
            not.
    """

    def __init__(self, record: dict[str, Any], running: InboundCall) -> None:
        self.record = record
        self.number: int = record["attempt"]
        self.running = running
        self.why = ""
        self.reported: tuple[float, str, int, int] | None = None
        self.stored: tuple[float, str, int, int] | None = None
        self.storing: asyncio.Task[None] | None = None

    def end(self, why: str) -> None:
        """Have it end early. The first reason counts."""
        if not self.why:
            self.why = why
            self.running.cancel()


async def end_with(lease: Lease, attempt: Attempt) -> None:
    """End an attempt when the lease of its key is lost."""
    await lease.lost()
    attempt.end("lost")


def encoded_error(error: BaseException) -> bytes:
    """Return an error as bytes; an error whose parts do not travel becomes its text."""
    try:
        return encode(error)
    except Exception:  # noqa: BLE001 - whatever its parts are
        from tidewire.errors import RemoteError

        return encode(RemoteError(type(error).__qualname__, str(error)))
