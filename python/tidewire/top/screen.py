"""One look at a node as a picture of a given width, and of a given height where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

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
_WIDE, _WIDER, _WIDEST = 96, 132, 160
_TIME_UNITS = (" us", " ms", " s")
_CALM = ("idle", "busy", "running", "starting", "stopping")

_Row = dict[str, Any]


def picture(look: _Row, width: int, height: int | None, note: str = "") -> RenderableType:
    """Return a picture of a look.

    Args:
        look: An answer of a node with rates.
        width: Columns of the terminal.
        height: Its lines, or None to show all rows.
        note: Text of the last line.
    """
    used = [row for row in look["dispatchers"] if row["actors"] or row["handled"]]
    tables = {kind: rows for kind in KINDS if (rows := used if kind == "dispatchers" else look[kind])}
    parts: list[RenderableType] = [*_head(look)]
    shares = [len(rows) for rows in tables.values()]
    if height is not None:
        shares = shared(shares, height - len(parts) - _FRAME_LINES * len(tables) - bool(note))
    for (kind, rows), share in zip(tables.items(), shares, strict=True):
        parts += ["", table(kind, rows[:share], width)]
        left = look.get(f"{kind}_count", len(rows)) - share
        parts += [Text(f"and {left:,} more", "dim")] if left else []
    return Group(*parts, *([_line(Text(note))] if note else []))


def shared(wants: list[int], room: int) -> list[int]:
    """Divide lines among tables: one each in turn, until there are no more or all have what they
    want.
    """
    shares = [0] * len(wants)
    while room > 0 and shares != wants:
        for at, want in enumerate(wants):
            if shares[at] < want and room > 0:
                shares[at] += 1
                room -= 1
    return shares


def _head(look: _Row) -> list[Text]:
    versions = look["versions"]
    life = f"   process {look['pid']}   up {_age(look['uptime_s'])}   "
    made = f"   tidewire {versions['tidewire']}, Python {versions['python']}"
    counts = [_counted(look[f"{kind}_count"], noun) for kind, noun in _COUNTS.items()]
    lines = [
        Text.assemble(plain(look["node"], "bold"), life, plain(look["url"]), made),
        Text("   ".join([*counts, _counted(look["timers"], "timer")])),
    ]
    dead, asks = look["dead_letters"], look["ask_timeouts"]
    reasons = sorted(((count, reason) for reason, count in dead.items() if count), reverse=True)
    named = ", ".join(f"{count:,} {reason}" for count, reason in reasons)
    troubles = [f"{_counted(sum(dead.values()), 'dead letter')}: {named}"] if reasons else []
    troubles += [_counted(asks, "ask timeout")] if asks else []
    return [_line(line) for line in [*lines, *([plain("   ".join(troubles), "red")] if troubles else [])]]


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _age(seconds: float) -> str:
    """Return a time in its two largest units."""
    parts: list[str] = []
    left = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


class Column(NamedTuple):
    """One column. The first of a table takes the room that the others leave."""

    title: str
    cell: Callable[[_Row], RenderableType]
    from_width: int = 0
    side: Literal["left", "right"] = "right"


def table(kind: str, rows: list[_Row], width: int) -> Table:
    """Return a table of rows of one kind: "agents", "pools", "services", "actors" or
    "dispatchers".
    """
    columns = [column for column in _COLUMNS[kind] if column.from_width <= width]
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, width=width, header_style="bold", show_edge=False)
    for number, (title, _, _, side) in enumerate(columns):
        made.add_column(title, justify=side, no_wrap=True, overflow="ellipsis", ratio=None if number else 1)
    for row in rows:
        made.add_row(*(column.cell(row) for column in columns))
    return made


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


def _text(title: str, key: str, from_width: int = 0) -> Column:
    return Column(title, lambda row: plain(row[key]), from_width, "left")


def _state(title: str) -> Column:
    return Column(title, lambda row: plain(row[title], "" if row[title] in _CALM else "red"), side="left")


def _count(title: str, key: str, from_width: int = 0) -> Column:
    return Column(title, lambda row: short(row[key]), from_width)


def _bad(key: str, from_width: int = 0) -> Column:
    """A count that should be 0."""
    return Column(key, lambda row: Text(short(row[key]), "red" if row[key] else ""), from_width)


def _time(title: str, key: str, from_width: int = 0) -> Column:
    return Column(title, lambda row: short(row[key], _TIME_UNITS) if row["handled"] else "-", from_width)


def _bar(row: _Row) -> Bar:
    share = depth(row) / row["capacity"] if row.get("capacity") else 0.0
    color = "red" if share >= _NEARLY_FULL else "yellow" if share >= _HALF_FULL else "default"
    # Of a short queue at least a trace is seen.
    return Bar(1.0, 0.0, max(share, 1 / (8 * _BAR_CELLS)) if share else 0.0, width=_BAR_CELLS, color=color)


def _actor_name(row: _Row) -> Text:
    return plain(row["name"] if row["name"] is not None else f"#{row['id']}")


def _workers(row: _Row) -> Text:
    present = row["workers"]
    return Text(f"{row['workers_busy']}/{present}", "yellow" if present < row.get("workers_wanted", present) else "")


def _threads(row: _Row) -> Text:
    return Text(f"{row['threads'] - row['asleep']}/{row['threads_max']}", "red" if row["starved"] else "")


_QUEUE = (Column("queue", _bar, side="left"), Column("", lambda row: short(depth(row))))
_HANDLED = (_count("/s", "handled_per_s"), _count("handled", "handled", _WIDE))
_TIMES = (
    _time("wait p50", "queueing_p50_us", _WIDER),
    _time("wait p99", "queueing_p99_us"),
    _time("run p50", "handling_p50_us", _WIDER),
    _time("run p99", "handling_p99_us"),
)

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "agents": (
        _text("agent", "id"),
        _text("type", "type", _WIDE),
        Column("capabilities", lambda row: plain(" ".join(row["capabilities"])), _WIDEST, "left"),
        _state("status"),
        *(*_QUEUE, *_HANDLED, _bad("failed"), _count("retried", "retried", _WIDER), _bad("expired", _WIDER), *_TIMES),
    ),
    "pools": (
        _text("pool", "name"),
        _text("function", "function", _WIDER),
        _text("kind", "kind", _WIDE),
        _state("state"),
        *(Column("busy", _workers), *_QUEUE, *_HANDLED, _bad("failed"), _bad("restarts", _WIDER), *_TIMES),
    ),
    "services": (
        _text("service", "service"),
        _text("instance", "instance", _WIDE),
        *(_count("running", "in_flight"), _count("waiting", "waiting"), *_HANDLED, _bad("errors")),
        _count("cancelled", "cancelled", _WIDER),
        *(_time("run p50", "p50_us", _WIDER), _time("run p99", "p99_us")),
    ),
    "actors": (
        Column("actor", _actor_name, side="left"),
        _text("dispatcher", "dispatcher", _WIDE),
        *(*_QUEUE, *_HANDLED, _bad("failed"), _bad("restarts", _WIDER), *_TIMES),
    ),
    "dispatchers": (
        _text("dispatcher", "name"),
        *(Column("busy", _threads), _count("actors", "actors"), *_QUEUE, *_HANDLED, _bad("failed"), *_TIMES),
    ),
}
