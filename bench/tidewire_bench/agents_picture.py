"""The scaling picture of pools: a panel for each size of tasks, a group of bars for each number of
workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from .agents_cases import SCALED_TASKS, SCALED_WORKERS
from .agents_scaling import Scaling, task
from .picture import HEIGHT, OTHERS, OURS, head, short, text

PANEL_TOP, PANEL_BOTTOM = 92, HEIGHT - 74
PANEL_LEFT, PANEL_WIDTH, PANEL_GAP = 78, 310, 64
GROUP_WIDTH, BAR_GAP = 96, 3
HEADROOM = 1.12
"""Room above the highest bar for its figure."""


def scaling_picture(found: Sequence[Scaling], foot: str) -> str:
    """Bars from zero, so that their lengths compare; a dashed line is what one processor does
    without a pool.
    """
    names = list(dict.fromkeys(one.contender for one in found if one.kind != "limit"))
    parts = [head("Pool of processes: tasks per second, by number of workers"), *legend(names)]
    panels = [(us, some) for us in SCALED_TASKS.values() if (some := [one for one in found if one.task_us == us])]
    for place, (task_us, some) in enumerate(panels):
        parts += panel(PANEL_LEFT + place * (PANEL_WIDTH + PANEL_GAP), f"tasks of {task(task_us)}", some, names)
    return "\n".join([*parts, text(PANEL_LEFT, HEIGHT - 10, foot, "foot"), "</svg>\n"])


def legend(names: Sequence[str]) -> Iterator[str]:
    """Colours of the contenders."""
    x = float(PANEL_LEFT)
    for name in names:
        yield f'<rect x="{x:.1f}" y="50" width="12" height="12" fill="{colour(name, names)}"/>'
        yield text(x + 18, 61, name)
        x += 44 + 7.4 * len(name)


def panel(left: float, title: str, some: Sequence[Scaling], names: Sequence[str]) -> Iterator[str]:
    """One size of tasks."""
    unit = (PANEL_BOTTOM - PANEL_TOP) / (HEADROOM * max(rate for one in some for rate in one.rates().values()))
    yield f'<line class="grid" x1="{left:.1f}" y1="{PANEL_BOTTOM}" x2="{left + PANEL_WIDTH:.1f}" y2="{PANEL_BOTTOM}"/>'
    yield text(left + PANEL_WIDTH / 2, PANEL_BOTTOM + 40, title, anchor="middle")
    for place, workers in enumerate(SCALED_WORKERS):
        middle = left + PANEL_WIDTH * (place + 0.5) / len(SCALED_WORKERS)
        yield text(middle, PANEL_BOTTOM + 18, f"{workers} worker{'s' * (workers > 1)}", anchor="middle")
        yield from bars(middle, workers, some, names, unit)
    for one in some:
        if one.kind == "limit":
            yield from level(left, one, unit)


def bars(middle: float, workers: int, some: Sequence[Scaling], names: Sequence[str], unit: float) -> Iterator[str]:
    """All contenders with one number of workers, with the median above each."""
    step = GROUP_WIDTH / len(names)
    for one in some:
        if one.kind == "limit" or workers not in one.best:
            continue
        rate = one.rates()[workers]
        x = middle - GROUP_WIDTH / 2 + names.index(one.contender) * step
        y = PANEL_BOTTOM - rate * unit
        tip = f"<title>{escape(one.contender)}, {workers} workers: {rate:,.0f} tasks/s</title>"
        size = f'width="{step - BAR_GAP:.1f}" height="{PANEL_BOTTOM - y:.1f}" fill="{colour(one.contender, names)}"'
        yield f'<rect x="{x:.1f}" y="{y:.1f}" {size}>{tip}</rect>'
        yield text(x + (step - BAR_GAP) / 2, y - 4, short(rate).replace(" ", ""), "tiny", anchor="middle")


def level(left: float, one: Scaling, unit: float) -> Iterator[str]:
    """The line of the tasks without a pool."""
    y = PANEL_BOTTOM - unit * max(one.rates().values())
    right = left + PANEL_WIDTH
    yield f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="#343a40" stroke-dasharray="4 4"/>'
    yield text(right + 4, y + 4, one.contender, "foot")


def colour(name: str, names: Sequence[str]) -> str:
    """Ours stands out."""
    others = [other for other in names if other != "tidewire"]
    return OURS if name == "tidewire" else OTHERS[others.index(name) % len(OTHERS)]
