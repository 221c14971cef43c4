"""Checks of campaign arguments: names, seeds, numbers and precision."""

from __future__ import annotations

import re
from typing import Any

from tidewire._binding import Run
from tidewire._campaigns.precision import Precision
from tidewire.errors import InvalidArgument

_NAME_BYTES_MAX = 128


def title_of(name: str) -> str:
    title = re.sub(r"[^\w.-]+", "_", name.rpartition(":")[2]).strip("_.") or "campaign"
    return title[:100]


def check_name(name: Any) -> None:
    if (
        not isinstance(name, str)
        or not 0 < len(name.encode("utf-8", "replace")) <= _NAME_BYTES_MAX
        or not name.isprintable()
    ):
        raise InvalidArgument(
            f"name: {name!r} is not allowed: give 1 to {_NAME_BYTES_MAX} bytes of text that can be printed"
        )
    if name.isdecimal():
        raise InvalidArgument(f"name: {name!r} looks like the number of a campaign: begin it with a letter")


def checked_seed(seed: Any) -> int | str:
    # The binding checks it.
    Run(campaign_seed=seed)
    return seed  # type: ignore[no-any-return]


def seed_of(text: str) -> int | str:
    kind, _, value = text.partition(":")
    return int(value) if kind == "int" else value


def seed_text(seed: int | str) -> str:
    return f"text:{seed}" if isinstance(seed, str) else f"int:{seed}"


def precision_of(until: Any, schema: tuple[list[tuple[str, str]], bool] | None) -> tuple[str, float, float] | None:
    if until is None:
        return None
    if not isinstance(until, Precision):
        raise InvalidArgument(f"until: {until!r} is not allowed: give tw.Precision(column, half_width=...)")
    if schema is not None:
        kinds = dict(schema[0])
        if kinds.get(until.column) not in ("integer", "float", "boolean"):
            raise InvalidArgument(
                f"until.column: {until.column!r} is no column of numbers; there are {', '.join(kinds)}"
            )
    return (until.column, float(until.half_width), float(until.confidence))


def integer(field: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(f"{field}: {short(value)} is not allowed: give a whole number from {least} to {most:,}")
    return value


def seconds(field: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InvalidArgument(f"{field}: {short(value)} is not allowed: give seconds from {least:g} to {most:,}")
    return float(value)


def micros(field: str, value: Any, least: float, most: float) -> int:
    return round(seconds(field, value, least, most) * 1e6)


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]} ..."
