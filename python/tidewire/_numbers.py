"""Checks of configuration tables against their limits, and of durations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from tidewire import _limits
from tidewire.errors import ConfigError, InvalidArgument


@dataclass(frozen=True)
class Numbers:
    """Table of a configuration. Each field is an integer, named after its limit."""

    _table: ClassVar[str]

    def __post_init__(self) -> None:
        check(self._table, self)

    def to_dict(self) -> dict[str, int]:
        """Return the settings as a table of a configuration."""
        return asdict(self)


def check(table: str, settings: Any) -> None:
    """Check all fields of a data class of numbers.

    Raises:
        ConfigError: if values are not allowed; the error lists all of them.
    """
    problems = []
    for field in fields(settings):
        limit, value = getattr(_limits, field.name.upper()), getattr(settings, field.name)
        allowed = f"{limit.min} to {limit.max} {limit.unit} are allowed"
        if isinstance(value, bool) or not isinstance(value, int):
            problems.append(f"{table}.{field.name}: {value!r} is not a whole number; {allowed} (from code)")
        elif not limit.min <= value <= limit.max:
            problems.append(f"{table}.{field.name}: {value} is out of range; {allowed} (from code)")
    if problems:
        title = "configuration: " if len(problems) == 1 else f"configuration: {len(problems)} problems\n  "
        raise ConfigError(title + "\n  ".join(problems), problems=problems)


def check_seconds(field: str, value: object) -> None:
    """Check a duration that may be None.

    Raises:
        InvalidArgument: if it is neither a number of at least 0 nor None.
    """
    # The comparison refuses NaN as well.
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
        raise InvalidArgument(f"{field}: {value!r} is not allowed: give seconds, 0 or more, or None")
