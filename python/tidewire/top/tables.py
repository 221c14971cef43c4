"""Columns of the tables: the text of a cell, and the least width of a terminal that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

_BAR_CELLS = 8
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HALF_FULL, _NEARLY_FULL = 0.5, 0.9
_ALWAYS, _WIDE, _WIDER, _WIDEST = 0, 96, 132, 160

_Row = dict[str, Any]
_Cell = Callable[[_Row], Text]


@dataclass(frozen=True)
class Column:
    """One column. The first of a table takes the room that the others leave."""

    title: str
    cell: _Cell
    from_width: int = _ALWAYS
    left: bool = False


def table(kind: str, rows: list[_Row], width: int) -> Table:
    """Return a table of rows of one kind: "agents", "pools", "services", "actors" or
    "dispatchers".
    """
    columns = [column for column in _COLUMNS[kind] if column.from_width <= width]
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, width=width, header_style="bold", show_edge=False)
    for number, column in enumerate(columns):
        ratio = 1 if number == 0 else None
        side = "left" if column.left or number == 0 else "right"
        made.add_column(column.title, justify=side, no_wrap=True, overflow="ellipsis", ratio=ratio)  # type: ignore[arg-type]
    for row in rows:
        made.add_row(*(column.cell(row) for column in columns))
    return made


def plain(value: object, style: str = "") -> Text:
    """Return a text from a program as one that a terminal shows and does not obey."""
    text = str(value)
    return Text("".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text), style)


def short(number: float | None) -> str:
    """Return a number in at most five characters: 999, 12.3k, 4.56M."""
    if number is None:
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size * 0.9995:
            scaled = number / size
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f}{unit}"
    return f"{number:.0f}"


def duration(us: float) -> str:
    """Return a time in at most six characters: 0.3 us, 85 us, 1.2 ms, 310 ms, 12 s."""
    unit, size = ("s", 1e6) if us >= 999_500 else ("ms", 1e3) if us >= 999.5 else ("us", 1)
    scaled = us / size
    return f"{scaled:.{1 if scaled < 9.95 else 0}f} {unit}"


def bar(depth: int, capacity: int | None) -> Text:
    """Return a queue as a bar of its capacity and a number. Of what waits at least a trace is
    seen.
    """
    if not capacity:
        return Text(f"{'':{_BAR_CELLS}} {short(depth):>5}")
    share = min(depth / capacity, 1.0)
    eighths = max(round(share * _BAR_CELLS * 8), 1 if depth else 0)
    full, rest = divmod(eighths, 8)
    drawn = ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(_BAR_CELLS)
    style = "red" if share >= _NEARLY_FULL else "yellow" if share >= _HALF_FULL else ""
    return Text(drawn, style).append(f" {short(depth):>5}", style)


def _text(key: str) -> _Cell:
    return lambda row: plain("" if row.get(key) is None else row[key])


def _count(key: str) -> _Cell:
    return lambda row: Text(short(row.get(key)))


def _bad(key: str) -> _Cell:
    """A count that should be 0."""
    return lambda row: Text(short(row.get(key)), "red" if row.get(key) else "")


def _time(key: str) -> _Cell:
    return lambda row: Text(duration(row[key]) if row["handled"] else "-")


def _queue(key: str) -> _Cell:
    return lambda row: bar(row[key], row.get("capacity"))


def _state(key: str) -> _Cell:
    calm = ("idle", "busy", "running", "starting", "stopping")
    return lambda row: plain(row[key], "" if row[key] in calm else "red")


def _actor_name(row: _Row) -> Text:
    return plain(row["name"] if row["name"] is not None else f"#{row['id']}")


def _workers(row: _Row) -> Text:
    present, wanted = row["workers"], row.get("workers_wanted", row["workers"])
    return Text(f"{row['workers_busy']}/{present}", "yellow" if present < wanted else "")


def _threads(row: _Row) -> Text:
    # Of older nodes the bound is unknown.
    most = row.get("threads_max", row["threads"])
    return Text(f"{row['threads'] - row['asleep']}/{most}", "red" if row.get("starved") else "")


_TIMES = (
    Column("wait p50", _time("queueing_p50_us"), _WIDER),
    Column("wait p99", _time("queueing_p99_us")),
    Column("run p50", _time("handling_p50_us"), _WIDER),
    Column("run p99", _time("handling_p99_us")),
)

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "agents": (
        Column("agent", _text("id")),
        Column("type", _text("type"), _WIDE, left=True),
        Column("capabilities", lambda row: plain(" ".join(row["capabilities"])), _WIDEST, left=True),
        Column("status", _state("status"), left=True),
        Column("queue", _queue("depth"), left=True),
        Column("/s", _count("handled_per_s")),
        Column("handled", _count("handled"), _WIDE),
        Column("failed", _bad("failed")),
        Column("retried", _count("retried"), _WIDER),
        Column("expired", _bad("expired"), _WIDER),
        *_TIMES,
    ),
    "pools": (
        Column("pool", _text("name")),
        Column("function", _text("function"), _WIDER, left=True),
        Column("kind", _text("kind"), _WIDE, left=True),
        Column("state", _state("state"), left=True),
        Column("busy", _workers),
        Column("queue", _queue("waiting"), left=True),
        Column("/s", _count("handled_per_s")),
        Column("handled", _count("handled"), _WIDE),
        Column("failed", _bad("failed")),
        Column("restarts", _bad("restarts"), _WIDER),
        *_TIMES,
    ),
    "services": (
        Column("service", _text("service")),
        Column("instance", _text("instance"), _WIDE, left=True),
        Column("running", _count("in_flight")),
        Column("waiting", _count("waiting")),
        Column("/s", _count("handled_per_s")),
        Column("handled", _count("handled"), _WIDE),
        Column("errors", _bad("errors")),
        Column("cancelled", _count("cancelled"), _WIDER),
        Column("run p50", _time("p50_us"), _WIDER),
        Column("run p99", _time("p99_us")),
    ),
    "actors": (
        Column("actor", _actor_name),
        Column("dispatcher", _text("dispatcher"), _WIDE, left=True),
        Column("queue", _queue("depth"), left=True),
        Column("/s", _count("handled_per_s")),
        Column("handled", _count("handled"), _WIDE),
        Column("failed", _bad("failed")),
        Column("restarts", _bad("restarts"), _WIDER),
        *_TIMES,
    ),
    "dispatchers": (
        Column("dispatcher", _text("name")),
        Column("busy", _threads),
        Column("actors", _count("actors")),
        Column("queue", _queue("depth"), left=True),
        Column("/s", _count("handled_per_s")),
        Column("handled", _count("handled"), _WIDE),
        Column("failed", _bad("failed")),
        *_TIMES,
    ),
}
