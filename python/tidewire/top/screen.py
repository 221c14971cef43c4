"""Rendering of a sample of a node's statistics for the width and height of a terminal."""

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
"""Further lines of a table: an empty line, its titles, and the number of omitted rows."""

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
"""Title of the queue length, beside the bar."""

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


def picture(sample: _Row, width: int, height: int | None, note: str = "") -> RenderableType:
    """Render a sample with rates for a terminal of this width and height. Without a height it has
    all rows. A note is its last line.
    """
    used = [row for row in sample["dispatchers"] if row["actors"] or row["handled"]]
    tables = {kind: rows for kind in KINDS if (rows := used if kind == "dispatchers" else sample[kind])}
    parts: list[RenderableType] = [*_head(sample)]
    lines = math.inf if height is None else height - len(parts) - _FRAME_LINES * len(tables) - bool(note)
    shares: dict[str, int] = {}
    # Short tables leave their unused lines to longer ones.
    for kind in sorted(tables, key=lambda kind: len(tables[kind])):
        shares[kind] = int(min(len(tables[kind]), max(lines, 0) // (len(tables) - len(shares))))
        lines -= shares[kind]
    for kind, rows in tables.items():
        parts += ["", table(kind, rows[: shares[kind]], width)]
        left = sample.get(f"{kind}_count", len(rows)) - shares[kind]
        parts += [Text(f"and {left:,} more", "dim")] if left else []
    return Group(*parts, *([_line(Text(note))] if note else []))


def _head(sample: _Row) -> list[Text]:
    versions, dead = sample["versions"], sample["dead_letters"]
    life = f"   process {sample['pid']}   up {timedelta(seconds=int(sample['uptime_s']))}   "
    language = sample.get("language", "python")
    release = f"   tidewire {versions['tidewire']}, {language.title()} {versions.get(language, '')}".rstrip()
    counts = [_counted(sample[f"{kind}_count"], noun) for kind, noun in _COUNTS.items()]
    reasons = sorted(((count, reason) for reason, count in dead.items() if count), reverse=True)
    causes = ", ".join(f"{count:,} {reason}" for count, reason in reasons)
    troubles = [f"{_counted(sum(dead.values()), 'dead letter')}: {causes}"] if reasons else []
    troubles += [_counted(sample["ask_timeouts"], "ask timeout")] if sample["ask_timeouts"] else []
    lines = [
        Text.assemble(plain(sample["node"], "bold"), life, plain(sample["url"]), release),
        Text("   ".join([*counts, _counted(sample["timers"], "timer")])),
        plain("   ".join(troubles), "red"),
    ]
    return [_line(line) for line in lines if line]


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def table(kind: str, rows: list[_Row], width: int) -> Table:
    """Return a table of rows of one kind. The column of names has the remaining width."""
    titles = [title for title in _TITLES[kind] if _FROM_WIDTH.get(title, 0) <= width]
    view = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, width=width, header_style="bold", show_edge=False)
    view.add_column(kind.removesuffix("s"), no_wrap=True, overflow="ellipsis", ratio=1)
    for title in titles:
        view.add_column(title, justify="left" if title in _LEFT else "right", no_wrap=True, overflow="ellipsis")
    name = {"agents": "id", "services": "service"}.get(kind, "name")
    for row in rows:
        first = f"#{row['id']}" if row[name] is None else row[name]
        view.add_row(plain(first), *(_cell(title, row) for title in titles))
    return view


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
    # A short queue has at least a visible trace.
    return Bar(1.0, 0.0, max(share, 1 / (8 * _BAR_CELLS)) if share else 0.0, width=_BAR_CELLS, color=color)


def _busy(row: _Row) -> Text:
    if "threads" in row:
        return Text(f"{row['threads'] - row['asleep']}/{row['threads_max']}", "red" if row["starved"] else "")
    present = row["workers"]
    return Text(f"{row['workers_busy']}/{present}", "yellow" if present < row.get("workers_wanted", present) else "")


def plain(value: object, style: str = "") -> Text:
    """Return a text without control characters, which a terminal would execute."""
    text = str(value)
    return Text("".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text), style)


def short(number: float | None, units: tuple[str, ...] = ("", "k", "M", "G")) -> str:
    """Format a number with three digits and a unit: 999, 12.3k, 4.56M."""
    if number is None:
        return "-"
    unit, *larger = units
    if number >= 999.5 and larger:
        return short(number / 1_000, tuple(larger))
    return f"{number:.3g}{unit}" if number < 100 else f"{number:.0f}{unit}"
