"""The report of a campaign as one HTML page with SVG charts, without scripts or external files; and
as notebook output.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING

from tidewire._campaigns import charts
from tidewire._campaigns.export import replaced_file
from tidewire._campaigns.report import Stages
from tidewire._campaigns.summary import NUMERIC, QUANTILES, Grouping, NumberColumn, ValueCounts, numbers_of, shown

if TYPE_CHECKING:
    from tidewire._campaigns.campaign import Campaign
    from tidewire._campaigns.report import Batch, Report

_ROWS_MAX = 1_000_000
_ROWS_AT_ONCE = 10_000
_COLUMNS_MAX = 24
_SETS_MAX = 32
_WORKERS_MAX = 32
_ARRAYS_MAX = 100_000
_ELEMENTS_MAX = 24
_ELEMENT_VALUES_KEPT = 256
_ERRORS_MAX = 20

STYLE = """
.tw { --ink: #14213d; --soft: #5c677d; --card: #ffffff; --line: #e4e2dc; --sea: #1d7a8c; --bad: #d1495b; --calm: #2a9d6f; color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
@media (prefers-color-scheme: dark) { .tw { --ink: #e8eaf0; --soft: #97a1b5; --card: #181e2a; --line: #2a3242; --sea: #4fb3c6; --bad: #ee7b8a; --calm: #5cc79b } }
.tw * { box-sizing: border-box } .tw h1 { font-size: 28px; margin: 0 } .tw h2 { font-size: 15px; margin: 0 0 10px; font-weight: 600 } .tw p { margin: 6px 0 }
.tw .soft { color: var(--soft) } .tw .grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 18px; margin: 18px 0 }
.tw .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; margin: 18px 0 }
.tw .tile, .tw section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px }
.tw .tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere } .tw .tile span { color: var(--soft); font-size: 13px }
.tw svg { width: 100%; height: auto; display: block } .tw svg text { fill: var(--ink); font: 11px system-ui, sans-serif } .tw svg .soft { fill: var(--soft) }
.tw .wide { overflow-x: auto; margin: 18px 0 } .tw .wide td, .tw .wide th { white-space: nowrap; padding-right: 18px }
.tw .edge { stroke: var(--ink); stroke-width: 1.5 } .tw .axis { stroke: var(--line) } .tw .bar, .tw .area { fill: var(--sea) } .tw .area { opacity: 0.85 } .tw .ok { color: var(--calm) } .tw .bad { color: var(--bad) }
.tw .p0 { fill: #1d7a8c } .tw .p1 { fill: #748ffc } .tw .p2 { fill: #f08c00 } .tw .p3 { fill: #d1495b } .tw .p4 { fill: #b197fc } .tw .p5 { fill: #adb5bd } .tw .p6 { fill: #dee2e6 }
.tw table { border-collapse: collapse; width: 100%; font-size: 13px } .tw td, .tw th { padding: 3px 6px 3px 0; border-bottom: 1px solid var(--line); text-align: left; font-weight: 400 }
.tw th { color: var(--soft) } .tw .n { text-align: right; font-variant-numeric: tabular-nums } .tw code { font-size: 13px; overflow-wrap: anywhere }
"""
_BODY = "body { margin: 0 auto; max-width: 1080px; padding: 36px 24px; background: #fdfcf9 } @media (prefers-color-scheme: dark) { body { background: #10141d } }"
_ORDER = ("run", "encode", "persist", "lease", "warm_up", "wait", "idle")
_WORDS = {
    "run": "function",
    "encode": "encode",
    "persist": "store",
    "lease": "lease",
    "warm_up": "warm up",
    "wait": "wait",
    "idle": "idle",
}


def write(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the page; see ``Report.page``."""
    text = document(report)
    with replaced_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def document(report: Report) -> str:
    """Return the page as HTML."""
    columns, table, note = _distributions(report)
    sections = [
        _section("Rate over time, runs per second", charts.area(rates(report.timeline), "runs/s", "seconds at work")),
        _section("Where the workers' time went", _stages(report)),
        *columns,
    ]
    events, errors = _events(report.campaign), _errors(report.campaign)
    return "\n".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Campaign {escape(report.name)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<style>{_BODY}{STYLE}</style></head><body><div class="tw">',
            *_head(report),
            f'<div class="grid">{"".join(sections)}</div>',
            table,
            f'<p class="soft">{escape(note)}</p>' if note else "",
            f'<div class="grid">{events}{errors}</div>' if errors else f'<div class="grid">{events}</div>',
            "</div></body></html>\n",
        ]
    )


def fragment(report: Report) -> str:
    """Return the notebook output: the counters, the rate and the stages. It reads no rows."""
    sections = [
        _section("Rate over time, runs per second", charts.area(rates(report.timeline), "runs/s", "seconds at work")),
        _section("Where the workers' time went", _stages(report)),
    ]
    return f'<div class="tw"><style>{STYLE}</style>{"".join(_head(report))}<div class="grid">{"".join(sections)}</div></div>'


def rates(timeline: Sequence[tuple[float, int]]) -> list[tuple[float, float]]:
    """Return the rate of ended runs per second of each interval, with its end in seconds."""
    points = []
    at, ended = 0.0, 0
    for seconds, runs in timeline:
        if seconds > at:
            points.append((seconds, max(0, runs - ended) / (seconds - at)))
            at, ended = seconds, runs
    return points


def _head(report: Report) -> Iterator[str]:
    bad = report.failed + report.quarantined
    yield f"<h1>{escape(report.name)}</h1>"
    yield f'<p class="soft"><code>{escape(report.function)}</code>, seed {escape(str(report.seed))}, created {report.created:%Y-%m-%d %H:%M} UTC</p>'
    reason = f": {escape(report.reason)}" if report.reason else ""
    tone = "bad" if report.condition in ("failed", "cancelled", "interrupted") else "ok"
    yield f'<p><b class="{tone}">{report.condition}</b>{reason}. {escape(report.limiting)}</p>'
    tiles = [
        (f"{report.done:,}", f"of {report.runs:,} runs stored"),
        (f"{report.rate:,.0f}", "runs a second"),
        (f"{report.seconds:,.2f} s", "at work"),
        (f"{len(report.workers):,}", f"workers, {report.losses:,} lost"),
        (f"{bad:,}", "failed or quarantined"),
    ]
    yield '<div class="tiles">'
    for figure, unit in tiles:
        yield f'<div class="tile"><b>{escape(figure)}</b><span>{escape(unit)}</span></div>'
    yield f'</div><p class="soft">digest <code>{report.digest}</code></p>'
    if report.look is not None:
        look = report.look
        verdict = "known well enough" if look.reached else "not yet known well enough"
        yield (
            f"<p>After {look.runs:,} runs the mean is {look.mean:.6g} ± {look.half_width:.3g}: {verdict}"
            f"; {max(0, report.runs - report.done - bad):,} runs were not needed.</p>"
            if report.state == "done"
            else f"<p>After {look.runs:,} runs the mean is {look.mean:.6g} ± {look.half_width:.3g}: {verdict}.</p>"
        )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _stages(report: Report) -> str:
    workers = sorted(report.workers, key=lambda worker: -worker.stages.total)[:_WORKERS_MAX]
    rows = [(f"{worker.id} · {worker.name or worker.process}", _parts(worker.stages)) for worker in workers]
    if not rows:
        return '<p class="soft">no worker yet</p>'
    more = len(report.workers) - len(workers)
    return charts.stacked(rows, "s") + (f'<p class="soft">and {more:,} more workers</p>' if more else "")


def _parts(stages: Stages) -> list[tuple[str, float]]:
    assert set(_ORDER) == {stage.name for stage in fields(stages)}
    return [(_WORDS[name], getattr(stages, name)) for name in _ORDER]


def _distributions(report: Report) -> tuple[list[str], str, str]:
    """Return the charts of the numeric columns, the table of the parameter sets, and notes on
    them.
    """
    campaign = report.campaign
    columns = campaign.columns or {}
    kinds = {name: kind for name, kind in columns.items() if kind in NUMERIC}
    nested = {name: kind for name, kind in columns.items() if kind == "json"}
    elements: dict[NumberColumn, ValueCounts] = {}
    names = list(kinds)[:_COLUMNS_MAX]
    sets = min(campaign.sets, _SETS_MAX) if campaign.sets > 1 else 0
    # For all rows, then for each set.
    groups = [[ValueCounts() for _ in names] for _ in range(1 + sets)]
    rows, grouping = 0, Grouping(campaign, ["param_set"])
    for batch in _sample(campaign, report):
        rows += len(batch.runs)
        for at, name in enumerate(names):
            groups[0][at].add(batch.columns[name])
        for column, numbers in (numbers_of(batch, nested) if rows <= _ARRAYS_MAX else {}).items():
            elements.setdefault(column, ValueCounts(_ELEMENT_VALUES_KEPT)).add(numbers)
        for (number,), places in grouping.split(batch) if sets else ():
            for at, name in enumerate(names) if number < sets else ():
                values = batch.columns[name]
                groups[1 + number][at].add([values[place] for place in places or ()])
    notes = [f"Of arrays the first {_ARRAYS_MAX:,} rows are shown."] if elements and rows > _ARRAYS_MAX else []
    if rows < report.rows:
        notes.append(
            f"The distributions are of {rows:,} of {report.rows:,} rows, in parts spread evenly over the runs."
        )
    if len(kinds) > _COLUMNS_MAX:
        notes.append(f"{len(kinds) - _COLUMNS_MAX} more numeric columns are not shown.")
    if campaign.sets > _SETS_MAX:
        notes.append(
            f"{campaign.sets - _SETS_MAX:,} more parameter sets are not shown: campaign.summary(by=...) has all."
        )
    parameters = [{name: shown(value) for name, value in campaign.parameters(number).items()} for number in range(sets)]
    varied = [name for name in (parameters or [{}])[0] if len({one[name] for one in parameters}) > 1]
    labels = [", ".join(one[name] for name in varied) for one in parameters]
    pictures = [
        _section(name, _column(name, kinds[name] == "boolean", varied, labels, [group[at] for group in groups]))
        for at, name in enumerate(names)
    ]
    pictures += [
        _section(name, _array(name, [(one, elements[one]) for one in sorted(elements) if one.position == at]))
        for at, name in enumerate(nested)
        if any(one.position == at for one in elements)
    ]
    table = _table(parameters, [(name, kinds[name] == "boolean") for name in names], groups[1:]) if sets else ""
    return pictures, table, " ".join(notes)


def _column(
    name: str, is_boolean: bool, varied: Sequence[str], labels: Sequence[str], groups: Sequence[ValueCounts]
) -> str:
    """Draw a column for all rows, and for each parameter set."""
    overall, *sets = groups
    missing = f", {overall.missing:,} missing" if overall.missing else ""
    if is_boolean:
        bars = [
            (label, [("true", float(_truths(counts))), ("false", float(counts.count - _truths(counts)))])
            for label, counts in zip(labels or ["all"], sets or groups, strict=True)
        ]
        return f'{charts.stacked(bars, "rows", name)}<p class="soft">{_truth(overall)}{missing}</p>'
    one = overall.summary(name, {})
    middle = " · ".join(f"{100 * share:g}%: {shown(one.quantiles[share])}" for share in QUANTILES)
    line = f"mean {shown(one.mean)} ± {shown(one.standard_error)}, {shown(one.min)} to {shown(one.max)}{missing}"
    quantiles = [
        (label, list(counts.summary(name, {}).quantiles.values())) for label, counts in zip(labels, sets, strict=True)
    ]
    picture = f'{charts.histogram(overall.sketch.weighed(), name)}<p class="soft">{line}<br>{middle}</p>'
    if not sets:
        return picture
    caption = f"By {', '.join(varied) or 'set'}: 5% to 95%, the middle half, the median"
    return f'{picture}<p class="soft">{escape(caption)}</p>{charts.boxes(quantiles, f"{name} by parameter set")}'


def _array(name: str, elements: Sequence[tuple[NumberColumn, ValueCounts]]) -> str:
    """Draw the elements of a column of arrays; of long arrays an evenly spread sample."""
    sample = elements[:: -(-len(elements) // _ELEMENTS_MAX)]
    summaries = [counts.summary(str(column.element), {}) for column, counts in sample]
    rows = "".join(
        f"<tr><td>{one.column}</td><td class='n'>{shown(one.mean)}</td>"
        f"<td class='n'>{' to '.join(map(shown, one.interval()))}</td></tr>"
        for one in summaries
    )
    caption = f"{len(sample):,} of {len(elements):,} elements: 5% to 95%, the middle half, the median"
    picture = charts.boxes([(one.column, list(one.quantiles.values())) for one in summaries], f"{name} by element")
    head = "<tr><th>element</th><th class='n'>mean</th><th class='n'>95% confidence interval</th></tr>"
    return f'{picture}<p class="soft">{caption}</p><table>{head}{rows}</table>'


def _table(
    parameters: Sequence[Mapping[str, str]],
    columns: Sequence[tuple[str, bool]],
    groups: Sequence[Sequence[ValueCounts]],
) -> str:
    """Return a table with the number, parameters and columns of each parameter set."""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("set", *parameters[0], *(name for name, _ in columns)))
    rows = []
    for number, (values, group) in enumerate(zip(parameters, groups, strict=True)):
        cells = [str(number), *values.values()]
        for (name, is_boolean), counts in zip(columns, group, strict=True):
            one = counts.summary(name, {})
            cells.append(_truth(counts) if is_boolean else f"{shown(one.mean)} ± {one.standard_error:.3g}")
        rows.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    table = f"<table><tr>{head}</tr>{''.join(rows)}</table>"
    return f'<section class="wide"><h2>Parameter sets: mean ± standard error</h2>{table}</section>'


def _truths(counts: ValueCounts) -> int:
    return round(counts.mean * counts.count)


def _truth(counts: ValueCounts) -> str:
    share = f" ({counts.mean:.3g})" if counts.count else ""
    return f"{_truths(counts):,} of {counts.count:,} true{share}"


def _sample(campaign: Campaign, report: Report) -> Iterator[Batch]:
    """Iterate over all rows, or over an evenly spread sample of ``_ROWS_MAX`` rows if there are
    more.
    """
    if report.rows <= _ROWS_MAX:
        yield from campaign.batches()
        return
    parts = _ROWS_MAX // _ROWS_AT_ONCE
    for part in range(parts):
        batch = next(campaign.batches(_ROWS_AT_ONCE, report.runs * part // parts), None)
        if batch is not None:
            yield batch


def _events(campaign: Campaign) -> str:
    rows = "".join(
        f"<tr><td>{event.at:%H:%M:%S}</td><td>{escape(event.after if event.after != event.before else 'note')}</td><td>{escape(event.reason)}</td></tr>"
        for event in campaign.events()[-_ERRORS_MAX:]
    )
    return _section("What happened", f"<table>{rows}</table>")


def _errors(campaign: Campaign) -> str:
    rows = []
    for number, failure in enumerate(campaign.errors()):
        if number == _ERRORS_MAX:
            rows.append('<tr><td colspan="3">and more: tidewire campaign errors</td></tr>')
            break
        words = f"{failure.error}: {failure.message}" if failure.error else failure.message
        rows.append(
            f'<tr><td class="n">{failure.run:,}</td><td>{escape(failure.kind)}</td><td>{escape(words[:200])}</td></tr>'
        )
    return _section("Runs that failed", f"<table>{''.join(rows)}</table>") if rows else ""
