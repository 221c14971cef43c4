"""Charts of a report as SVG: histograms, areas over time, box plots and stacked bars. The style of
the page defines the colours.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 520, 220
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 34
_MOST = sys.float_info.max
_LEAST_SPAN = 1e-300
"""Smallest range of values with ticks: below it the step would underflow."""
_LEAST_SHARE = 1e-9


def shorter(value: float) -> str:
    """Format a figure in few characters: 1.5 M, 45 k, 0.0012."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == ' k' else size):.3g}{unit}"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def area(points: Sequence[tuple[float, float]], unit: str, label: str) -> str:
    """Draw steps over time. Each point is the end of a step and its height."""
    most_x = max((x for x, _ in points), default=1.0) or 1.0
    ticks = nice_ticks(0.0, max((y for _, y in points), default=1.0) or 1.0)
    plot = _Plot((0.0, most_x), (0.0, ticks[-1]))
    path = [f"M{plot.x(0):.1f},{plot.y(0):.1f}"]
    for x, y in points:
        path.append(f"V{plot.y(y):.1f}H{plot.x(x):.1f}")
    path.append(f"V{plot.y(0):.1f}Z")
    parts = [*plot.frame(ticks, nice_ticks(0.0, most_x), label), f'<path class="area" d="{"".join(path)}"/>']
    return plot.sheet(parts, f"{unit} over time")


def histogram(weighed: Sequence[tuple[float, float]], name: str, places: int = 40) -> str:
    """Draw a histogram of weighted values. Few distinct integers have a bar each."""
    weighed = [(value, weight) for value, weight in weighed if math.isfinite(value)]
    if not weighed:
        return '<p class="soft">no values</p>'
    least, most = min(weighed)[0], max(weighed)[0]
    different = sorted({value for value, _ in weighed})
    one_bar_each = len(different) <= places and all(value == round(value) for value in different)
    # At huge values, 0.5 would be below the precision of a float.
    beside = max(0.5, max(-least, most) * _LEAST_SHARE)
    if one_bar_each:
        places = int(min(places, most - least + 1)) if most - least < places else places
    if one_bar_each or most - least < _LEAST_SPAN:
        low, high = max(-_MOST, least - beside), min(_MOST, most + beside)
    else:
        low, high = least, most
    counts = [0.0] * places
    for value, weight in weighed:
        counts[min(places - 1, int(_share(value, low, high) * places))] += weight
    total = sum(counts)
    ticks = nice_ticks(0.0, 100 * max(counts) / total)
    plot = _Plot((low, high), (0.0, ticks[-1]))
    across = [value for value in nice_ticks(low, high) if not one_bar_each or value % 1 == 0]
    parts = plot.frame(ticks, across, name, percent=True)
    width = (WIDTH - LEFT - RIGHT) / places
    for place, count in enumerate(counts):
        if count:
            share = 100 * count / total
            x, right, y = LEFT + place * width, LEFT + (place + 1) * width, plot.y(share)
            middle = (place + 0.5) / places
            about = shorter(low * (1 - middle) + high * middle)
            tip = f"<title>about {about}: {share:.2g}%</title>"
            size = f'width="{max(right - x - 1, 0.6):.1f}" height="{plot.y(0) - y:.1f}"'
            parts.append(f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" {size}>{tip}</rect>')
    return plot.sheet(parts, f"distribution of {name}")


def boxes(rows: Sequence[tuple[str, Sequence[float]]], title: str) -> str:
    """Draw a box plot for each row, from five quantiles: whiskers, a box and the median."""
    finite_values = [value for _, values in rows for value in values if math.isfinite(value)]
    if not finite_values:
        return ""
    line, left, low, high = 22, 118, min(finite_values), max(finite_values)
    height = line * len(rows) + 26

    def x(value: float) -> float:
        share = _share(min(max(value, low), high), low, high) if high > low else 0.5
        return left + share * (WIDTH - left - RIGHT)

    parts = []
    for place, (label, values) in enumerate(rows):
        y = 4 + place * line
        parts.append(f'<text x="0" y="{y + 13}">{_fit_label(label)}</text>')
        if any(math.isnan(value) for value in values):
            continue
        first, begin, median, end, last = map(x, values)
        parts.append(f'<line class="edge" x1="{first:.1f}" x2="{last:.1f}" y1="{y + 9}" y2="{y + 9}"/>')
        tip = f"<title>{escape(label)}: {' · '.join(f'{value:.6g}' for value in values)}</title>"
        parts.append(
            f'<rect class="bar" x="{begin:.1f}" y="{y + 2}" width="{end - begin:.1f}" height="14">{tip}</rect>'
        )
        parts.append(f'<line class="edge" x1="{median:.1f}" x2="{median:.1f}" y1="{y}" y2="{y + 18}"/>')
    for value, anchor in ((low, "start"), (high, "end")) if low < high else ((low, "middle"),):
        parts.append(
            f'<text class="soft" x="{x(value):.1f}" y="{height - 6}" text-anchor="{anchor}">{shorter(value)}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(title)}</title>{"".join(parts)}</svg>'


def _fit_label(label: str) -> str:
    return escape(label if len(label) <= 18 else label[:17] + "…")


def stacked(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str, title: str = "") -> str:
    """Draw a bar for each row, stacked from its parts. Their CSS classes are ``p0``, ``p1``,
    ...
    """
    line, left = 26, 118
    most = max((sum(value for _, value in parts) for _, parts in rows), default=0.0) or 1.0
    scale = (WIDTH - left - 70) / most
    height = line * len(rows) + 30
    names = [name for name, _ in rows[0][1]] if rows else []
    shapes = []
    x = 0.0
    for at, name in enumerate(names):
        shapes.append(f'<rect class="p{at}" x="{x:.1f}" y="2" width="10" height="10" rx="2"/>')
        shapes.append(f'<text class="soft" x="{x + 14:.1f}" y="11">{escape(name)}</text>')
        x += 24 + 6.4 * len(name)
    for place, (label, parts) in enumerate(rows):
        y, x = 26 + place * line, float(left)
        shapes.append(f'<text x="0" y="{y + 13}">{_fit_label(label)}</text>')
        total = sum(value for _, value in parts)
        for at, (name, value) in enumerate(parts):
            width = value * scale
            if width > 0.05:
                share = f"{value / total:.0%}" if total else ""
                tip = f"<title>{escape(name)}: {value:.3g} {unit}, {share}</title>"
                shapes.append(f'<rect class="p{at}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="17">{tip}</rect>')
            x += width
        shapes.append(f'<text class="soft" x="{x + 6:.1f}" y="{y + 13}">{shorter(total)} {escape(unit)}</text>')
    titled = f"<title>counts of {escape(title)}</title>" if title else ""
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{titled}{"".join(shapes)}</svg>'


def nice_ticks(least: float, most: float, count: int = 4) -> list[float]:
    """Return round numbers that cover a range, about ``count`` steps apart."""
    span = min(_MOST, most - least) or 1.0
    most = max(most, least + span)
    size = 10.0 ** math.floor(math.log10(span / count))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if span / (size * factor) <= count)
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    return [place * step for place in range(first, last + 1)]


def _share(value: float, low: float, high: float) -> float:
    """Return the position of a value in a range, from 0 to 1."""
    if math.isinf(high - low):
        value, low, high = value / 2, low / 2, high / 2
    return (value - low) / (high - low)


class _Plot:
    """A plot with a vertical axis on the left and a horizontal axis below."""

    def __init__(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        self._across, self._up = across, up

    def x(self, value: float) -> float:
        return LEFT + _share(value, *self._across) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self._up
        return HEIGHT - BOTTOM - (value - low) / (high - low or 1.0) * (HEIGHT - TOP - BOTTOM)

    def frame(self, up: Sequence[float], across: Sequence[float], label: str, percent: bool = False) -> list[str]:
        parts = []
        for value in up:
            y = self.y(value)
            words = f"{value:.3g}%" if percent else shorter(value)
            parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="soft" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{words}</text>')
        low, high = self._across
        for value in across:
            if low <= value <= high:
                x = self.x(value)
                parts.append(
                    f'<text class="soft" x="{x:.1f}" y="{HEIGHT - 18}" text-anchor="middle">{shorter(value)}</text>'
                )
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(
            f'<text class="soft" x="{middle:.1f}" y="{HEIGHT - 3}" text-anchor="middle">{escape(label)}</text>'
        )
        return parts

    def sheet(self, parts: Sequence[str], title: str) -> str:
        return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}</title>{"".join(parts)}</svg>'
