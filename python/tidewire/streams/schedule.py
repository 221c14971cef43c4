"""Schedules: messages that a storage backend publishes by itself, again and again."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from tidewire.errors import InvalidArgument
from tidewire.streams.event import decoded
from tidewire.streams.home import span_us, time_of

if TYPE_CHECKING:
    from tidewire.streams.home import Home


class Schedule:
    """A schedule of a stream, as it was when the storage backend was asked; ``await
    stream.schedule(...)`` makes one.

    Attributes:
        name: Its name.
        when: Its cron expression, or ``@every 30s``.
        time_zone: Time zone of its times.
        subject: Where its beats are published.
        key: Subject of the events, or None.
        ttl: Seconds after which a beat is not delivered any more, or None.
        next_time: Its next beat, or None.
        change: Change that ``stream.schedule`` made: ``"made"`` it, ``"replaced"`` one with
            other settings, or ``"kept"`` the present one.
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
        """The value of its beats. Decoded anew each time."""
        return decoded(self._payload, self._headers)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its beats, the type of the content among them."""
        return dict(self._headers)

    async def cancel(self) -> bool:
        """End it: no further beat comes. False if there was none of its name any more."""
        cancelled: bool = await self._home.call("cancel_schedule", self._stream, self.name)
        return cancelled

    def __repr__(self) -> str:
        return f"<Schedule {self.name} {self.when!r} of {self._stream}>"


def when_of(when: Any) -> str:
    """Return the time of a schedule in the form of storage backends: seconds as an interval.

    Raises:
        InvalidArgument: if it is neither an expression nor whole seconds.
    """
    if isinstance(when, str):
        return when
    micros = span_us("when", when)
    if not micros or micros % 1_000_000:
        raise InvalidArgument(
            f'when: {when!r} is not allowed: give "0 22 * * 1-5", "@daily" or whole seconds from 1 on'
        )
    return f"@every {micros // 1_000_000}s"
