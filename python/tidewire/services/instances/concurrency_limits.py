"""Concurrency limits of one service instance: calls that run, and calls that wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewire._limits import SERVICE_CONCURRENCY, SERVICE_STREAMS, SERVICE_WAITING
from tidewire.supervision import Mailbox, whole

if TYPE_CHECKING:
    from tidewire.service_config import ServiceConfig


@dataclass(frozen=True)
class ConcurrencyLimits:
    """The limits of one instance.

    Attributes:
        calls: Calls that run at once.
        waiting: Calls that have come and not begun, and streams.
        streams: Streams that are written at once.
        ahead: Items of a stream that were written and not taken.
    """

    calls: int
    waiting: int
    streams: int
    ahead: int

    @classmethod
    def of(
        cls,
        settings: ServiceConfig,
        concurrency: int | None = None,
        waiting: int | None = None,
        streams: int | None = None,
    ) -> ConcurrencyLimits:
        """Return the settings of the node as defaults of a service.

        Raises:
            InvalidArgument: if a number is out of range.
        """
        given = (concurrency, SERVICE_CONCURRENCY), (waiting, SERVICE_WAITING), (streams, SERVICE_STREAMS)
        for name, (value, limit) in zip(("concurrency", "waiting", "streams"), given, strict=True):
            if value is not None:
                whole(name, value, limit)
        return cls(
            settings.service_concurrency if concurrency is None else concurrency,
            settings.service_waiting if waiting is None else waiting,
            settings.service_streams if streams is None else streams,
            settings.stream_ahead,
        )

    @property
    def mailbox(self) -> Mailbox:
        """The mailbox in which calls wait."""
        return Mailbox(self.waiting, "fail")
