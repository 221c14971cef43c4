"""The report as one page with pictures: HTML and SVG, no scripts, nothing loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import tidewire as tw
from report import Outcome

STYLE = """
:root { --ink: #14213d; --soft: #5c677d; --paper: #fdfcf9; --card: #ffffff; --line: #e4e2dc; --sea: #1d7a8c; --late: #d1495b; --calm: #2a9d6f }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaf0; --soft: #97a1b5; --paper: #10141d; --card: #181e2a; --line: #2a3242; --sea: #4fb3c6; --late: #ee7b8a; --calm: #5cc79b }
}
* { box-sizing: border-box } body { margin: 0 auto; max-width: 1080px; padding: 40px 24px; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 30px; margin: 0 } h2 { font-size: 15px; margin: 0 0 12px; font-weight: 600 } p { margin: 6px 0 }
.lead { color: var(--soft); margin-bottom: 28px } .grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 20px }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-bottom: 20px }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px }
.tile b { display: block; font-size: 24px; font-variant-numeric: tabular-nums } .tile span { color: var(--soft); font-size: 13px }
svg { width: 100%; height: auto; display: block } svg text { fill: var(--ink); font: 12px system-ui, sans-serif } svg .soft { fill: var(--soft) }
.bar { fill: var(--sea) } .late { fill: var(--late) } .calm { fill: var(--calm) } .axis { stroke: var(--line) }
.ok { color: var(--calm) } .bad { color: var(--late) } table { border-collapse: collapse; width: 100% } td { padding: 3px 0; border-bottom: 1px solid var(--line) }
td:not(:first-child) { text-align: right; font-variant-numeric: tabular-nums }
"""


def render(outcome: Outcome) -> str:
    """Return the whole page."""
    totals = outcome.totals
    counts = totals.flights
    carriers = sorted(
        totals.carrier_flights,
        key=lambda code: -outcome.mean_delay(totals.carrier_minutes, totals.carrier_flights, code),
    )
    carrier_rows = [
        (
            f"{code} {outcome.carriers.get(code, '')}",
            outcome.mean_delay(totals.carrier_minutes, totals.carrier_flights, code),
        )
        for code in carriers
    ]
    hours = [
        (f"{hour:02}", outcome.mean_delay(totals.hour_minutes, totals.hour_flights, hour))
        for hour in sorted(totals.hour_flights)
    ]
    verdict = (
        f'<p class="bad">{len(outcome.differences)} totals differ from the plain computation.</p>'
        if outcome.differences
        else f'<p class="ok">All {len(totals):,} totals equal those of a plain single-threaded computation.</p>'
    )
    tiles = [
        (f"{counts['all']:,}", "flights"),
        (f"{counts['flown']:,}", "flown"),
        (f"{counts['cancelled']:,}", "cancelled"),
        (f"{sum(totals.alerts.values()):,}", "an hour or more late"),
        (f"{outcome.restarts:,}", "restarts of the auditor"),
        (f"{outcome.messages / outcome.seconds:,.0f}", "messages a second"),
    ]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Flights through Tidewire</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head><body><h1>A year of departures from New York</h1>",
            '<p class="lead">Every flight of 2013 as a message through a system of actors.</p>',
            '<div class="tiles">'
            + "".join(f'<div class="tile"><b>{n}</b><span>{what}</span></div>' for n, what in tiles)
            + "</div>",
            '<div class="grid">',
            _section("Mean delay at arrival by scheduled hour, in minutes", _columns(hours)),
            _section("Mean delay at arrival by carrier, in minutes", _bars(carrier_rows)),
            _section("Departures an hour or more late, by airport and carrier", _heat(outcome)),
            _section(
                "The weather at the hour of those departures",
                _bars([(kind, n) for kind, n in totals.late_in_weather.most_common()], whole=True),
            ),
            _section("Worst routes among those flown often", _routes(outcome)),
            _section("What became of the messages", _ledger(outcome)),
            "</div>",
            verdict,
            "</body></html>",
        ]
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _columns(rows: Sequence[tuple[str, float]]) -> str:
    width, height, top = 480, 250, 20
    most = max((value for _, value in rows), default=1.0) or 1.0
    least = min(0.0, min((value for _, value in rows), default=0.0))
    scale = (height - top - 30) / (most - least)
    zero = top + most * scale
    step = width / max(1, len(rows))
    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img">',
        f'<line class="axis" x1="0" x2="{width}" y1="{zero:.1f}" y2="{zero:.1f}"/>',
    ]
    for place, (label, value) in enumerate(rows):
        x, size = place * step, abs(value) * scale
        y = zero - size if value >= 0 else zero
        parts.append(
            f'<rect class="{_tone(value)}" x="{x + 2:.1f}" y="{y:.1f}" width="{step - 4:.1f}" height="{size:.1f}" rx="2"/>'
        )
        parts.append(
            f'<text class="soft" x="{x + step / 2:.1f}" y="{height - 4}" text-anchor="middle">{escape(label)}</text>'
        )
        number_y = y - 4 if value >= 0 else y + size + 12
        parts.append(
            f'<text x="{x + step / 2:.1f}" y="{number_y:.1f}" text-anchor="middle" font-size="10">{value:.0f}</text>'
        )
    return "".join(parts) + "</svg>"


def _bars(rows: Sequence[tuple[str, float]], whole: bool = False) -> str:
    width, line, left = 480, 20, 190
    least, most = min([0.0, *(v for _, v in rows)]), max([1.0, *(v for _, v in rows)])
    scale = (width - left - 60) / (most - least)
    zero = left - least * scale
    parts = [f'<svg viewBox="0 0 {width} {line * len(rows) + 4}" role="img">']
    for place, (label, value) in enumerate(rows):
        y, size = place * line, abs(value) * scale
        x = zero if value >= 0 else zero - size
        number = f"{value:,.0f}" if whole else f"{value:.1f}"
        parts.append(f'<text x="0" y="{y + 14}">{escape(label[:28])}</text>')
        parts.append(
            f'<rect class="{"bar" if whole else _tone(value)}" x="{x:.1f}" y="{y + 4}" width="{size:.1f}" height="13" rx="2"/>'
        )
        parts.append(f'<text class="soft" x="{max(x + size, zero) + 5:.1f}" y="{y + 14}">{number}</text>')
    return "".join(parts) + "</svg>"


def _heat(outcome: Outcome) -> str:
    alerts = outcome.totals.alerts
    origins = sorted({name.split(".")[1] for name in alerts})
    carriers = sorted({name.split(".")[2] for name in alerts})
    most = max(alerts.values(), default=1)
    cell, left = 27, 42
    parts = [f'<svg viewBox="0 0 {left + cell * len(carriers)} {30 + cell * len(origins)}" role="img">']
    parts += [
        f'<text class="soft" x="{left + i * cell + cell / 2}" y="14" text-anchor="middle">{c}</text>'
        for i, c in enumerate(carriers)
    ]
    for row, origin in enumerate(origins):
        y = 22 + row * cell
        parts.append(f'<text x="0" y="{y + 18}">{origin}</text>')
        for place, carrier in enumerate(carriers):
            count = alerts[f"delay.{origin}.{carrier}"]
            strength = 0.06 + 0.94 * (count / most) ** 0.5 if count else 0.03
            title = f"<title>{origin} {carrier}: {count:,}</title>"
            x = left + place * cell
            parts.append(
                f'<rect class="late" x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" rx="3" opacity="{strength:.2f}">{title}</rect>'
            )
    return "".join(parts) + "</svg>"


def _routes(outcome: Outcome) -> str:
    rows = "".join(
        f"<tr><td>{route} {escape(outcome.airports.get(route[4:], ''))}</td><td>{delay:.1f} min</td><td>{flights:,}</td></tr>"
        for route, delay, flights in outcome.worst_routes()
    )
    return f"<table>{rows}</table>"


def _ledger(outcome: Outcome) -> str:
    ledger = tw.Ledger.total(list(outcome.ledgers.values()))
    dead = ", ".join(f"{count:,} {reason}" for reason, count in sorted(outcome.dead.items())) or "none"
    rows = [
        ("messages in all", f"{outcome.messages:,}"),
        ("seconds", f"{outcome.seconds:.2f}"),
        ("dead letters", dead),
        ("accepted", f"{ledger.accepted:,}"),
        ("handled", f"{ledger.handled:,}"),
        ("returned", f"{ledger.returned:,}"),
        ("dead-lettered", f"{ledger.dead_lettered:,}"),
    ]
    return "<table>" + "".join(f"<tr><td>{what}</td><td>{n}</td></tr>" for what, n in rows) + "</table>"


def _tone(value: float) -> str:
    return "calm" if value <= 0 else "late" if value >= 10 else "bar"
