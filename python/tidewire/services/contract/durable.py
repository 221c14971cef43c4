"""Options of handlers of durable events: ``@tw.on(subject, durable=...)``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from tidewire._limits import CONCURRENCY, CONSUMER_IN_FLIGHT
from tidewire.services.contract.names import nearest, short

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypedDict

    class DurableOptions(TypedDict, total=False):
        """Options of a durable handler; see ``tw.on``."""

        stream: str | None
        mode: Literal["compete", "broadcast"]
        start: Literal["new", "all"] | int | datetime
        ack_wait: float
        max_deliver: int
        backoff: Sequence[float]
        order: Literal["none", "key"]
        concurrency: int
        max_in_flight: int


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class DurableMark:
    """A declared durable handler. ``problems`` checks it."""

    name: Any
    stream: Any = None
    mode: Any = "compete"
    start: Any = "new"
    ack_wait: Any = 30.0
    max_deliver: Any = 5
    backoff: Any = (0.1, 1.0, 10.0)
    order: Any = "none"
    concurrency: Any = 1
    max_in_flight: Any = CONSUMER_IN_FLIGHT.default
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, name: Any, options: Mapping[str, Any]) -> DurableMark:
        """Return a handler with its options, including unknown ones."""
        known = {field.name for field in dataclasses.fields(cls)} - {"name", "others"}
        return cls(
            name,
            **{key: value for key, value in options.items() if key in known},
            others={key: value for key, value in options.items() if key not in known},
        )

    def problems(self, title: str) -> list[str]:
        """Return all problems of the declaration."""
        if self.name is None:
            changed = {
                field.name for field in dataclasses.fields(self)[1:-1] if getattr(self, field.name) != field.default
            }
            return [
                f"{title}: {key}: it is for durable handlers: add durable=, or leave it out" for key in sorted(changed)
            ]
        options = [field.name for field in dataclasses.fields(self)[1:-1]]
        found = [
            f"{title}: {key}: there is no such option of a durable handler: {nearest(key, options)}"
            for key in self.others
        ]
        for field in ("name", "stream"):
            value = getattr(self, field)
            if not (field == "stream" and value is None) and not (isinstance(value, str) and _NAME.fullmatch(value)):
                option = "durable" if field == "name" else field
                found.append(
                    f"{title}: {option}: {short(value)} is not allowed: give 1 to 64 letters, digits, '_' and '-'"
                )
        for field, allowed in (("mode", ("compete", "broadcast")), ("order", ("none", "key"))):
            if getattr(self, field) not in allowed:
                choices = " or ".join(map(repr, allowed))
                found.append(f"{title}: {field}: {short(getattr(self, field))} is not allowed: give {choices}")
        if self.start not in ("new", "all") and not isinstance(self.start, datetime) and not is_whole(self.start, 0):
            found.append(
                f'{title}: start: {short(self.start)} is not allowed: give "new", "all", a sequence or a datetime'
            )
        for field, most in (("concurrency", CONCURRENCY.max), ("max_in_flight", CONSUMER_IN_FLIGHT.max)):
            if not is_whole(getattr(self, field), 1, most):
                found.append(f"{title}: {field}: {short(getattr(self, field))} is not allowed: give 1 to {most}")
        if not is_whole(self.max_deliver, 0):
            found.append(
                f"{title}: max_deliver: {short(self.max_deliver)} is not allowed: give a number of deliveries, 0 for no limit"
            )
        if not _seconds(self.ack_wait) or not self.ack_wait:
            found.append(f"{title}: ack_wait: {short(self.ack_wait)} is not allowed: give seconds above 0")
        if not isinstance(self.backoff, (list, tuple)) or not all(map(_seconds, self.backoff)):
            found.append(f"{title}: backoff: {short(self.backoff)} is not allowed: give seconds, such as (0.1, 1, 10)")
        return found


def is_whole(value: object, least: int, most: int = 1 << 31) -> bool:
    """Return True if a value is an integer within these bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9
