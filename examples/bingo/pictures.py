"""The races as a page with pictures: who wins, and how long each strategy takes. HTML and SVG, no
scripts, nothing loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

import tidewire as tw

STYLE = """
:root { --ink: #14213d; --soft: #5c677d; --paper: #fdfcf9; --card: #ffffff; --line: #e4e2dc; --one: #1d7a8c; --two: #d1495b; --three: #7b6fd0; --four: #b97b10 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaf0; --soft: #97a1b5; --paper: #10141d; --card: #181e2a; --line: #2a3242; --one: #4fb3c6; --two: #ee7b8a; --three: #a99ff0; --four: #e0a83a }
}
* { box-sizing: border-box } body { margin: 0 auto; max-width: 900px; padding: 40px 24px; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 30px; margin: 0 } h2 { font-size: 15px; margin: 0 0 12px; font-weight: 600 } section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px; margin: 18px 0 }
svg { width: 100%; height: auto; display: block } svg text { fill: var(--ink); font: 12px system-ui, sans-serif } svg .soft { fill: var(--soft) } .soft { color: var(--soft) } .axis { stroke: var(--line) }
.one { fill: var(--one) } .two { fill: var(--two) } .three { fill: var(--three) } .four { fill: var(--four) } code { overflow-wrap: anywhere }
"""
TONES = ("one", "two", "three", "four")
WIDTH, LEFT = 820, 110
PLACES, PANEL = 60, 92


def render(campaign: tw.Campaign, alone: tw.Report, disturbed: tw.Report) -> str:
    """Return the whole page."""
    hours: dict[str, list[float]] = {}
    wins: Counter[str] = Counter()
    for row in campaign.results():
        hours.setdefault(row.strategy, []).append(row.hours)
        wins[row.strategy] += row.won
    same = "The same digest" if alone.digest == disturbed.digest else "DIFFERENT digests"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Bingo races</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head><body><h1>{disturbed.done:,} races over a bingo board</h1>",
            '<p class="soft">Teams that differ in nothing but their strategy; the first with 60 points wins.</p>',
            f"<section><h2>Races won</h2>{shares(wins)}</section>",
            f"<section><h2>Hours until a team is through</h2>{distributions(hours)}</section>",
            f"<section><h2>How they were run</h2><p>{line('One worker, undisturbed', alone)}</p>",
            f"<p>{line(f'Two workers, {disturbed.losses} killed in the middle', disturbed)}</p>",
            f"<p>{same}: <code>{disturbed.digest}</code></p><p>{escape(disturbed.limiting)}</p></section>",
            "</body></html>\n",
        ]
    )


def line(how: str, report: tw.Report) -> str:
    """Text with the duration and rate of one campaign."""
    return f"{how}: {report.done:,} races in {report.seconds:.2f} s, {report.rate:,.0f} races/s."


def shares(wins: Mapping[str, int]) -> str:
    """A bar for each strategy."""
    total, room = sum(wins.values()) or 1, WIDTH - LEFT - 70
    parts = [f'<svg viewBox="0 0 {WIDTH} {30 * len(wins)}" role="img">']
    for place, (strategy, won) in enumerate(wins.items()):
        y, size = 30 * place, room * won / total
        parts.append(f'<text x="0" y="{y + 18}">{escape(strategy)}</text>')
        parts.append(f'<rect class="{TONES[place % 4]}" x="{LEFT}" y="{y + 4}" width="{size:.1f}" height="20" rx="3"/>')
        parts.append(f'<text class="soft" x="{LEFT + size + 6:.1f}" y="{y + 18}">{won / total:.1%}</text>')
    return "".join(parts) + "</svg>"


def distributions(hours: Mapping[str, Sequence[float]]) -> str:
    """A panel for each strategy, over the same hours; a line marks the median."""
    everything = sorted(value for values in hours.values() for value in values)
    least, most = everything[0], everything[-1]
    span = (most - least) or 1.0
    counted = {
        name: Counter(min(PLACES - 1, int((value - least) / span * PLACES)) for value in values)
        for name, values in hours.items()
    }
    tallest = max(count / len(hours[name]) for name, counts in counted.items() for count in counts.values())
    step = (WIDTH - LEFT) / PLACES
    height = PANEL * len(hours) + 24
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img">']
    for place, (name, values) in enumerate(hours.items()):
        floor = PANEL * (place + 1) - 6
        for at, count in counted[name].items():
            size = (PANEL - 20) * count / len(values) / tallest
            where = f'x="{LEFT + at * step:.1f}" y="{floor - size:.1f}" width="{step - 1:.1f}" height="{size:.1f}"'
            parts.append(f'<rect class="{TONES[place % 4]}" {where}/>')
        median = sorted(values)[len(values) // 2]
        x = LEFT + (median - least) / span * (WIDTH - LEFT)
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH}" y1="{floor}" y2="{floor}"/>')
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{floor - PANEL + 14}" y2="{floor}" stroke="currentColor"/>')
        parts.append(f'<text x="0" y="{floor - 22}">{escape(name)}</text>')
        parts.append(f'<text class="soft" x="0" y="{floor - 6}">median {median:.0f} h</text>')
    for tick in range(5):
        x = LEFT + tick / 4 * (WIDTH - LEFT)
        anchor = "start" if tick == 0 else "end" if tick == 4 else "middle"
        parts.append(
            f'<text class="soft" x="{x:.1f}" y="{height - 4}" text-anchor="{anchor}">{least + tick / 4 * span:.0f} h</text>'
        )
    return "".join(parts) + "</svg>"
