"""Line charts as SVG, written by hand: sizes on a logarithmic axis, a line for each contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10

Points = Sequence[tuple[int, float]]

WIDTH, HEIGHT = 820, 440
LEFT, RIGHT, TOP, BOTTOM = 78, 150, 56, 74
OURS = "#0b7285"
OTHERS = ("#e8590c", "#5f3dc4", "#2b8a3e", "#a61e4d", "#868e96", "#364fc7")


def chart(title: str, x_title: str, y_title: str, lines: Mapping[str, Points], foot: str) -> str:
    """A picture with both axes logarithmic, so that contenders a hundred times apart can be told
    apart.
    """
    scale = Scale.around(lines)
    parts = [head(title), *grid(scale, x_title, y_title)]
    for (name, points), label_y in zip(lines.items(), label_places(lines, scale), strict=True):
        parts += line(name, points, colour(name, list(lines)), label_y, scale)
    parts += [text(LEFT, HEIGHT - 10, foot, "foot"), "</svg>"]
    return "\n".join(parts) + "\n"


class Scale:
    """From values to places, in whole decades; sizes within one decade are marked one by one."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.x_low, self.x_high = x
        self.y_low, self.y_high = y
        self.x_ticks: list[float] = []

    @classmethod
    def around(cls, lines: Mapping[str, Points]) -> Scale:
        """Just wide enough for all lines."""
        xs = sorted({x for points in lines.values() for x, _ in points})
        ys = [max(y, 1.0) for points in lines.values() for _, y in points]
        x_low, y_low = log10(min(xs)), floor(log10(min(ys)))
        scale = cls((x_low, max(log10(max(xs)), x_low + 0.1)), (y_low, max(ceil(log10(max(ys))), y_low + 1)))
        decades = [10.0**decade for decade in range(ceil(scale.x_low), floor(scale.x_high) + 1)]
        scale.x_ticks = decades if len(decades) > 1 else [float(x) for x in xs]
        return scale

    def x(self, value: float) -> float:
        """The place of a size."""
        return LEFT + (log10(value) - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """The place of a rate."""
        share = (log10(max(value, 1.0)) - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def head(title: str) -> str:
    """The sheet of a chart, its styles and the title."""
    return sheet(title, WIDTH, HEIGHT, LEFT)


def sheet(title: str, width: float, height: float, left: float) -> str:
    """A white sheet of some size with its styles and the title."""
    label = escape(title)
    size = f"{width:.0f} {height:.0f}"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" aria-label="{label}">
<style>
text {{ font: 13px system-ui, sans-serif; fill: #343a40 }}
.title {{ font-size: 17px; font-weight: 600 }}
.panel {{ font-size: 12px; font-weight: 600 }}
.name {{ font-size: 11px }}
.ours {{ font-weight: 700; fill: {OURS} }}
.foot {{ font-size: 11px; fill: #868e96 }}
.tiny {{ font-size: 9px; fill: #868e96 }}
.grid {{ stroke: #dee2e6; stroke-width: 1 }}
.fine {{ stroke: #f1f3f5; stroke-width: 1 }}
</style>
<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>
{text(left, 30, title, "title")}"""


def grid(scale: Scale, x_title: str, y_title: str) -> list[str]:
    """Decades with their labels."""
    parts = []
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for decade in range(floor(scale.y_low), ceil(scale.y_high) + 1):
        y = scale.y(10.0**decade)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(text(LEFT - 8, y + 4, short(10.0**decade), anchor="end"))
        if decade < scale.y_high:
            for step in range(2, 10):
                fine = scale.y(step * 10.0**decade)
                parts.append(f'<line class="fine" x1="{LEFT}" y1="{fine:.1f}" x2="{right}" y2="{fine:.1f}"/>')
    for tick in scale.x_ticks:
        x = scale.x(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(text(x, bottom + 18, short(tick), anchor="middle"))
    parts.append(text((LEFT + right) / 2, bottom + 38, x_title, anchor="middle"))
    middle = (TOP + bottom) / 2
    turned = f'transform="rotate(-90 20 {middle:.0f})"'
    parts.append(f'<text x="20" y="{middle:.0f}" text-anchor="middle" {turned}>{escape(y_title)}</text>')
    return parts


def line(name: str, points: Points, stroke: str, label_y: float, scale: Scale) -> list[str]:
    """One contender: its line, its points, its name at the right end."""
    places = [(scale.x(x), scale.y(y)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    width = 3 if stroke == OURS else 1.8
    pen = f'fill="none" stroke="{stroke}" stroke-width="{width}" stroke-linejoin="round"'
    parts = [f'<polyline points="{path}" {pen}/>']
    for (x, y), (size, value) in zip(places, points, strict=True):
        tip = f"<title>{escape(name)}, {size:,}: {value:,.0f}</title>"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{width + 0.7}" fill="{stroke}">{tip}</circle>')
    weight = ' font-weight="600"' if stroke == OURS else ""
    label = f"{escape(name)} {short(points[-1][1])}"
    parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{label_y:.1f}" style="fill: {stroke}"{weight}>{label}</text>')
    return parts


def label_places(lines: Mapping[str, Points], scale: Scale) -> list[float]:
    """The height of each name: at its line's end, moved so that no two overlap."""
    wanted = sorted((scale.y(points[-1][1]) + 4, name) for name, points in lines.items())
    places: dict[str, float] = {}
    last = float("-inf")
    for y, name in wanted:
        last = places[name] = max(y, last + 16)
    return [places[name] for name in lines]


def colour(name: str, names: Sequence[str]) -> str:
    """Ours stands out; the others keep their colour for the order in which they come."""
    if name.startswith("tidewire"):
        return OURS
    others = [other for other in names if not other.startswith("tidewire")]
    return OTHERS[others.index(name) % len(OTHERS)]


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Some words at a place."""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def short(value: float) -> str:
    """1,000,000 as 1 M."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
