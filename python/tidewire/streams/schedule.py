"""Schedules: messages that a storage backend publishes at recurring times."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from tidewire.errors import InvalidArgument
from tidewire.streams.event import decode_payload
from tidewire.streams.home import span_us, time_of

if TYPE_CHECKING:
    from tidewire.streams.home import Home


class Schedule:
    """A schedule of a stream: a snapshot of the storage backend. ``await stream.schedule(...)``
    creates one.

    Attributes:
        name: Its name.
        when: Its cron expression, or ``@every 30s``.
        time_zone: Time zone of the expression.
        subject: The subject to which its beats are published.
        key: Key of its events, or None.
        ttl: Seconds after which a beat expires, or None.
        next_time: Time of its next beat, or None.
        change: Effect of ``stream.schedule``: ``"made"`` for a new one, ``"replaced"`` for one with
            other settings, or ``"kept"`` for one with the same settings.
    """

    __slots__ = (
        "_headers",
        "_home",
        "_payload",
        "_stream",
        "change",
        "key",
        "name",
        "next_time",
        "subject",
        "time_zone",
        "ttl",
        "when",
    )

    def __init__(self, home: Home, stream: str, raw: dict[str, Any]) -> None:
        self._home = home
        self._stream = stream
        self._payload: bytes = raw["payload"]
        self._headers: list[tuple[str, str]] = [(name, value) for name, value in raw["headers"]]
        self.name: str = raw["name"]
        self.when: str = raw["when"]
        self.time_zone: str = raw["time_zone"]
        self.subject: str = raw["subject"]
        self.key: str | None = raw["key"]
        self.ttl: float | None = None if raw["ttl_us"] is None else raw["ttl_us"] / 1_000_000
        self.next_time: datetime | None = time_of(raw["next_us"])
        self.change: Literal["made", "replaced", "kept"] = raw["change"]

    @property
    def value(self) -> Any:
        """The value of its beats. Each access decodes it again."""
        return decode_payload(self._payload, self._headers)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its beats, including the content type."""
        return dict(self._headers)

    async def cancel(self) -> bool:
        """Cancel the schedule: it publishes no more beats. Return False if it does not exist."""
        cancelled: bool = await self._home.call("cancel_schedule", self._stream, self.name)
        return cancelled

    def __repr__(self) -> str:
        return f"<Schedule {self.name} {self.when!r} of {self._stream}>"


def when_of(when: Any) -> str:
    """Return the time of a schedule as storage backends expect it: seconds become an interval.

    Raises:
        InvalidArgument: if ``when`` is neither an expression nor whole seconds.
    """
    if isinstance(when, str):
        return when
    micros = span_us("when", when)
    if not micros or micros % 1_000_000:
        raise InvalidArgument(
            f'when: {when!r} is not allowed: give "0 22 * * 1-5", "@daily" or whole seconds from 1 on'
        )
    return f"@every {micros // 1_000_000}s"
