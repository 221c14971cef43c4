"""One look at a node as a picture of a given width, and of a given height where there is one."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tidewire.top.tables import plain, table

_KINDS = ("agents", "pools", "services", "actors", "dispatchers")
_FRAME_LINES = 3
"""A table also needs an empty line, its titles, and a line that says what was left out."""

_Row = dict[str, Any]


def picture(look: _Row, width: int, height: int | None, note: str = "") -> RenderableType:
    """Return a picture of a look.

    Args:
        look: An answer of a node with rates.
        width: Columns of the terminal.
        height: Its lines, or None to show all rows.
        note: Text of the last line.
    """
    head, tables = _head(look), _tables(look)
    wants = [len(rows) for rows in tables.values()]
    used = len(head) + _FRAME_LINES * len(tables) + (1 if note else 0)
    shares = wants if height is None else shared(wants, max(height - used, 0))
    parts: list[RenderableType] = [*head]
    for (kind, rows), share in zip(tables.items(), shares, strict=True):
        parts += [Text(""), table(kind, rows[:share], width), *_rest(look.get(f"{kind}_count", len(rows)) - share)]
    return Group(*parts, *([Text(note, no_wrap=True, overflow="ellipsis")] if note else []))


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


def _tables(look: _Row) -> dict[str, list[_Row]]:
    used = [row for row in look["dispatchers"] if row["actors"] or row["handled"]]
    rows = {**{kind: look.get(kind, []) for kind in _KINDS}, "dispatchers": used}
    return {kind: rows[kind] for kind in _KINDS if rows[kind]}


def _head(look: _Row) -> list[Text]:
    versions = look["versions"]
    life = f"   process {look['pid']}   up {_age(look['uptime_s'])}   "
    made = f"   tidewire {versions['tidewire']}, Python {versions['python']}"
    first = Text.assemble(plain(look["node"], "bold"), life, plain(look["url"]), made)
    counts = [
        ("agents_count", "agent"),
        ("pools_count", "pool"),
        ("services_count", "service"),
        ("actors_count", "other actor"),
        ("timers", "timer"),
    ]
    second = Text("   ".join(_counted(look[key], noun) for key, noun in counts if key in look))
    lines = [first, second, *_troubles(look)]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines


def _troubles(look: _Row) -> list[Text]:
    """Problems of the node: a line of their own, if there are any."""
    asks, reasons = look["ask_timeouts"], {reason: count for reason, count in look["dead_letters"].items() if count}
    named = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items(), key=lambda one: -one[1]))
    texts = [f"{_counted(sum(reasons.values()), 'dead letter')}: {named}"] if reasons else []
    texts += [_counted(asks, "ask timeout")] if asks else []
    return [plain("   ".join(texts), "red")] if texts else []


def _rest(left: int) -> list[Text]:
    return [Text(f"and {left:,} more", "dim")] if left > 0 else []


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _age(seconds: float) -> str:
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {int(seconds % 60)} s" if minutes else f"{seconds:.0f} s"
