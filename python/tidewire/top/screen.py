"""One look at a node as a picture of a given width, and of a given height where there is one."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidewire.top.answer import depth
from tidewire.top.rates import KINDS

_FRAME_LINES = 3
"""A table also needs an empty line, its titles, and a line that says what was left out."""

_COUNTS = {"agents": "agent", "pools": "pool", "services": "service", "actors": "other actor"}

_BAR_CELLS = 8
_HALF_FULL, _NEARLY_FULL = 0.5, 0.9
_TIME_UNITS = (" us", " ms", " s")

_TIMES = {
    "wait p50": ("queueing_p50_us",),
    "wait p99": ("queueing_p99_us",),
    "run p50": ("handling_p50_us", "p50_us"),
    "run p99": ("handling_p99_us", "p99_us"),
}
_KEYS = {"/s": "handled_per_s", "running": "in_flight"}
_DEPTH = ""
"""Title of the number beside the bar of a queue."""

_QUEUE, _HANDLED = ("queue", _DEPTH), ("/s", "handled")
_TITLES: dict[str, tuple[str, ...]] = {
    "joins": ("state", *_HANDLED, "calls_in", "calls_out", "refused", "lost"),
    "agents": ("type", "capabilities", "status", *_QUEUE, *_HANDLED, "failed", "retried", "expired", *_TIMES),
    "pools": ("function", "kind", "state", "busy", *_QUEUE, *_HANDLED, "failed", "restarts", *_TIMES),
    "services": ("instance", "running", "waiting", *_HANDLED, "errors", "cancelled", "run p50", "run p99"),
    "routes": ("instance", "state", "expected", "error", *_HANDLED, "outstanding", "reason"),
    "actors": ("dispatcher", *_QUEUE, *_HANDLED, "failed", "restarts", *_TIMES),
    "dispatchers": ("busy", "actors", *_QUEUE, *_HANDLED, "failed", *_TIMES),
}
_FROM_WIDTH = {
    **dict.fromkeys(("type", "kind", "instance", "dispatcher", "handled", "error"), 96),
    **dict.fromkeys(("function", "retried", "expired", "cancelled", "restarts", "wait p50", "run p50", "reason"), 132),
    "capabilities": 160,
}
_STATES, _CALM = ("status", "state"), ("idle", "busy", "running", "starting", "stopping", "joined", "healthy")
_LEFT = (*_STATES, "type", "kind", "instance", "dispatcher", "function", "capabilities", "queue", "reason")
_FAULTS = ("failed", "errors", "expired", "restarts", "refused", "lost")

_Row = dict[str, Any]


def picture(look: _Row, width: int, height: int | None, note: str = "") -> RenderableType:
    """Return a picture of a look with rates, for a terminal of so many columns and lines. Without a
    height it shows all rows. A note is its last line.
    """
    used = [row for row in look["dispatchers"] if row["actors"] or row["handled"]]
    tables = {kind: rows for kind in KINDS if (rows := used if kind == "dispatchers" else look[kind])}
    parts: list[RenderableType] = [*_head(look)]
    lines = math.inf if height is None else height - len(parts) - _FRAME_LINES * len(tables) - bool(note)
    shares: dict[str, int] = {}
    # A short table leaves its lines to the longer ones.
    for kind in sorted(tables, key=lambda kind: len(tables[kind])):
        shares[kind] = int(min(len(tables[kind]), max(lines, 0) // (len(tables) - len(shares))))
        lines -= shares[kind]
    for kind, rows in tables.items():
        parts += ["", table(kind, rows[: shares[kind]], width)]
        left = look.get(f"{kind}_count", len(rows)) - shares[kind]
        parts += [Text(f"and {left:,} more", "dim")] if left else []
    return Group(*parts, *([_line(Text(note))] if note else []))


def _head(look: _Row) -> list[Text]:
    versions, dead = look["versions"], look["dead_letters"]
    life = f"   process {look['pid']}   up {timedelta(seconds=int(look['uptime_s']))}   "
    language = look.get("language", "python")
    made = f"   tidewire {versions['tidewire']}, {language.title()} {versions.get(language, '')}".rstrip()
    counts = [_counted(look[f"{kind}_count"], noun) for kind, noun in _COUNTS.items()]
    reasons = sorted(((count, reason) for reason, count in dead.items() if count), reverse=True)
    named = ", ".join(f"{count:,} {reason}" for count, reason in reasons)
    troubles = [f"{_counted(sum(dead.values()), 'dead letter')}: {named}"] if reasons else []
    troubles += [_counted(look["ask_timeouts"], "ask timeout")] if look["ask_timeouts"] else []
    lines = [
        Text.assemble(plain(look["node"], "bold"), life, plain(look["url"]), made),
        Text("   ".join([*counts, _counted(look["timers"], "timer")])),
        plain("   ".join(troubles), "red"),
    ]
    return [_line(line) for line in lines if line]


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def table(kind: str, rows: list[_Row], width: int) -> Table:
    """Return a table of rows of one kind. The names take the room that the other columns leave."""
    titles = [title for title in _TITLES[kind] if _FROM_WIDTH.get(title, 0) <= width]
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, width=width, header_style="bold", show_edge=False)
    made.add_column(kind.removesuffix("s"), no_wrap=True, overflow="ellipsis", ratio=1)
    for title in titles:
        made.add_column(title, justify="left" if title in _LEFT else "right", no_wrap=True, overflow="ellipsis")
    name = {"agents": "id", "services": "service"}.get(kind, "name")
    for row in rows:
        first = f"#{row['id']}" if row[name] is None else row[name]
        made.add_row(plain(first), *(_cell(title, row) for title in titles))
    return made


def _cell(title: str, row: _Row) -> RenderableType:
    if title == "queue":
        return _bar(row)
    if title == "busy":
        return _busy(row)
    if title == "expected":
        return short(row["expected_us"], _TIME_UNITS)
    if title == "error":
        return "-" if row[title] is None else f"{row[title]:.0%}"
    if title == "capabilities":
        return plain(" ".join(row[title]))
    if title in _TIMES:
        us = next(row[key] for key in _TIMES[title] if key in row)
        return short(us, _TIME_UNITS) if row["handled"] else "-"
    value = depth(row) if title == _DEPTH else row[_KEYS.get(title, title)]
    if isinstance(value, str):
        return plain(value, "red" if title in _STATES and value not in _CALM else "")
    return Text(short(value), "red" if title in _FAULTS and value else "")


def _bar(row: _Row) -> Bar:
    share = depth(row) / row["capacity"] if row.get("capacity") else 0.0
    color = "red" if share >= _NEARLY_FULL else "yellow" if share >= _HALF_FULL else "default"
    # Of a short queue at least a trace is seen.
    return Bar(1.0, 0.0, max(share, 1 / (8 * _BAR_CELLS)) if share else 0.0, width=_BAR_CELLS, color=color)


def _busy(row: _Row) -> Text:
    if "threads" in row:
        return Text(f"{row['threads'] - row['asleep']}/{row['threads_max']}", "red" if row["starved"] else "")
    present = row["workers"]
    return Text(f"{row['workers_busy']}/{present}", "yellow" if present < row.get("workers_wanted", present) else "")


def plain(value: object, style: str = "") -> Text:
    """Return a text from a program as one that a terminal shows and does not obey."""
    text = str(value)
    return Text("".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text), style)


def short(number: float | None, units: tuple[str, ...] = ("", "k", "M", "G")) -> str:
    """Return a number in three digits with a unit: 999, 12.3k, 4.56M."""
    if number is None:
        return "-"
    unit, *larger = units
    if number >= 999.5 and larger:
        return short(number / 1_000, tuple(larger))
    return f"{number:.3g}{unit}" if number < 100 else f"{number:.0f}{unit}"
