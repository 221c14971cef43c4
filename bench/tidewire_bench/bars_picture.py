"""Every contender under every workload as one picture: a panel for each workload, a bar for each
contender, best first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil

from .model import Kind
from .picture import OURS, sheet, short, text
from .results import CaseResult, Series

COLUMNS = 2
WIDTH = 980
PANEL_WIDTH, PANEL_GAP, SIDE = 440, 44, 28
NAME_WIDTH, FIGURE_WIDTH = 158, 62
ROW, BAR = 17, 11
HEADING, BETWEEN, ABOVE, BELOW = 26, 22, 76, 34
COLOURS: dict[Kind, str] = {"ours": OURS, "peer": "#748ffc", "channel": "#b197fc", "limit": "#ced4da"}
WORDS: tuple[tuple[Kind, str], ...] = (
    ("ours", "Tidewire"),
    ("peer", "through a hub or broker"),
    ("channel", "without one"),
    ("limit", "bare sockets"),
)


def bars_picture(title: str, cases: Sequence[CaseResult], foot: str) -> str:
    """Panels in two columns. Bars begin at zero, so that their lengths compare; a thin line goes
    from minimum to maximum.
    """
    shown = [case for case in cases if case.ranked(*COLOURS)]
    tops, y = [], float(ABOVE)
    for place in range(ceil(len(shown) / COLUMNS)):
        tops.append(y)
        row = shown[place * COLUMNS : (place + 1) * COLUMNS]
        y += HEADING + BETWEEN + ROW * max(len(case.ranked(*COLOURS)) for case in row)
    height = y + BELOW
    parts = [sheet(title, WIDTH, height, SIDE), *legend()]
    for place, case in enumerate(shown):
        left = SIDE + place % COLUMNS * (PANEL_WIDTH + PANEL_GAP)
        parts += panel(case, left, tops[place // COLUMNS])
    return "\n".join([*parts, text(SIDE, height - 12, foot, "foot"), "</svg>\n"])


def legend() -> Iterator[str]:
    """Meaning of the colours."""
    x = float(SIDE)
    for kind, words in WORDS:
        yield f'<rect x="{x:.1f}" y="46" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield text(x + 18, 57, words)
        x += 48 + 7.2 * len(words)


def panel(case: CaseResult, left: float, top: float) -> Iterator[str]:
    """One workload."""
    figure, unit = case.case.figure, case.case.unit
    words = unit if case.case.higher_is_better else f"{unit}, less is better"
    yield text(left, top + 12, case.case.title, "panel")
    yield text(left + PANEL_WIDTH, top + 12, words, "foot", anchor="end")
    ranked = case.ranked(*COLOURS)
    room = PANEL_WIDTH - NAME_WIDTH - FIGURE_WIDTH
    scale = room / max(max(one.values[figure]) for one in ranked)
    for place, one in enumerate(ranked):
        yield from bar(one, figure, left, top + HEADING + place * ROW, scale)


def bar(one: Series, figure: str, left: float, y: float, scale: float) -> Iterator[str]:
    """One contender: its name, its bar with the spread, its median."""
    values, kind = one.values[figure], one.run.kind
    middle, low, high = one.middle(figure), min(values), max(values)
    start, line_y = left + NAME_WIDTH, y + BAR / 2
    weight = "ours" if kind == "ours" else ""
    tip = f"<title>{escape(label(one))}: {middle:,.4g} ({low:,.4g} to {high:,.4g})</title>"
    yield text(start - 8, y + BAR - 1, label(one), f"name {weight}".strip(), anchor="end")
    size = f'width="{middle * scale:.1f}" height="{BAR}" fill="{COLOURS[kind]}"'
    yield f'<rect x="{start:.1f}" y="{y:.1f}" {size}>{tip}</rect>'
    ends = f'x1="{start + low * scale:.1f}" y1="{line_y:.1f}" x2="{start + high * scale:.1f}" y2="{line_y:.1f}"'
    yield f'<line {ends} stroke="#212529" stroke-width="1" opacity="0.55"/>'
    yield text(start + max(high, middle) * scale + 6, y + BAR - 1, short(middle), f"name {weight}".strip())


def label(one: Series) -> str:
    """Its name and, where there are several, its form."""
    name = one.run.contender.removesuffix(" (Rust)").removesuffix(" direct")
    return name if one.run.form in name else f"{name}, {one.run.form}"
