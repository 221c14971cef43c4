"""``tidewire campaign ...`` and ``tidewire worker``: campaigns of a store from the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import tidewire as tw
from tidewire._campaigns.store import shown, url_of, without_password
from tidewire.commands.output import as_json, fail
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._campaigns.report import Status

_OUTPUT = "-"


def run(
    function: str,
    store: str | None,
    plan: Mapping[str, Any],
    limits: Mapping[str, Any],
    workers: int | None,
    page: Path | None,
    json_wanted: bool,
) -> int:
    """Run a campaign; 1 if it did not get done."""

    def work() -> int:
        from tidewire._campaigns.supervisor import checked_workers

        # Before the plan is stored.
        checked_workers("--workers", workers, least=0)
        campaign = _planned(function, store, plan, limits)
        return _run(campaign, workers, limits["accept_code"], page, json_wanted)

    return _done(work, json_wanted)


def go_on(
    name: str, store: str | None, workers: int | None, accept_code: bool, page: Path | None, json_wanted: bool
) -> int:
    """Run a stored campaign; 1 if it did not get done."""

    def work() -> int:
        _import_from_here()
        return _run(tw.open_campaign(store, name), workers, accept_code, page, json_wanted)

    return _done(work, json_wanted)


def list_all(store: str | None, json_wanted: bool) -> int:
    """List campaigns."""

    def work() -> int:
        found = [(campaign, campaign.status()) for campaign in tw.campaigns(store)]
        if json_wanted:
            names = ("id", "name", "state", "condition", "runs", "done", "failed", "quarantined", "rate")
            rows = [{name: getattr(status, name) for name in names} for _, status in found]
            _say([{**row, "created": str(one.created)} for row, (one, _) in zip(rows, found, strict=True)], None, True)
            return 0
        if not found:
            print("no campaigns")
            return 0
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("number", "name", "state", "done", "runs", "failed", "created"):
            table.add_column(
                title, justify="left" if title in ("name", "state", "created") else "right", overflow="fold"
            )
        for one, status in found:
            counts = (f"{status.done:,}", f"{status.runs:,}", f"{status.failed + status.quarantined:,}")
            table.add_row(str(one.id), one.name, status.condition, *counts, f"{one.created:%Y-%m-%d %H:%M}")
        Console(highlight=False).print(table)
        return 0

    return _done(work, json_wanted)


def show(name: str, store: str | None, verify: bool, json_wanted: bool) -> int:
    """Show a campaign; 1 if its rows are not those that were stored."""

    def work() -> int:
        campaign = tw.open_campaign(store, name)
        status = campaign.status()
        digest = campaign.verify() if verify else None
        good = digest is None or digest == status.digest
        data = {
            **_status_data(status),
            "function": campaign.function,
            "seed": campaign.seed,
            "created": campaign.created,
            "table": campaign.table,
            "columns": campaign.columns,
            "parameter_sets": campaign.sets,
            "events": [dataclasses.asdict(event) for event in campaign.events()],
        }
        if digest is not None:
            data.update(digest_of_rows=digest, verified=good)
        _say(data, _shown(campaign, status, digest), json_wanted)
        return 0 if good else 1

    return _done(work, json_wanted)


def change(name: str, store: str | None, how: str, reason: str, json_wanted: bool) -> int:
    """Pause, resume or cancel a campaign; 1 if it was resumed and no program is there to run it."""

    def work() -> int:
        campaign = tw.open_campaign(store, name)
        getattr(campaign, how)(reason)
        status = campaign.status()
        data = {name: getattr(status, name) for name in ("id", "name", "state", "condition")}
        _say(data, "\n".join([f"{campaign.name} is {status.condition}", *_advice(campaign, status)]), json_wanted)
        return 1 if status.condition == "interrupted" else 0

    return _done(work, json_wanted)


def errors(name: str, store: str | None, max: int, tracebacks: bool, json_wanted: bool) -> int:
    """Show failed runs."""

    def work() -> int:
        found = list(itertools.islice(tw.open_campaign(store, name).errors(), max))
        lines = [
            f"run {one.run:,}  {one.kind} after {one.attempts} attempts  {one.error}: {one.message}" for one in found
        ]
        if tracebacks:
            lines = [f"{line}\n{one.traceback}" for line, one in zip(lines, found, strict=True)]
        _say([dataclasses.asdict(one) for one in found], "\n".join(lines) or "no run has failed", json_wanted)
        return 0

    return _done(work, json_wanted)


def summary(name: str, store: str | None, by: Sequence[str], json_wanted: bool) -> int:
    """Print statistics."""

    def work() -> int:
        found = tw.open_campaign(store, name).summary(by=by)
        _say(found.asdicts(), repr(found) if found else "no numeric columns yet", json_wanted)
        return 0

    return _done(work, json_wanted)


def export(name: str, store: str | None, path: str, json_wanted: bool) -> int:
    """Write results."""

    def work() -> int:
        campaign = tw.open_campaign(store, name)
        if path == _OUTPUT:
            campaign.to_csv(sys.stdout)
            return 0
        if path.endswith(".csv"):
            rows = campaign.to_csv(path)
        elif path.endswith(".parquet"):
            rows = campaign.to_parquet(path)
        else:
            raise InvalidArgument(f"PATH: {path!r} is not allowed: let it end in .csv or .parquet, or be {_OUTPUT}")
        _say({"path": path, "rows": rows}, f"{rows:,} rows are in {path}", json_wanted)
        return 0

    return _done(work, json_wanted)


def report(name: str, store: str | None, out: Path | None, json_wanted: bool) -> int:
    """Print the report, and write its page."""

    def work() -> int:
        found = tw.open_campaign(store, name).report()
        text = repr(found)
        if out is not None:
            found.page(out)
            text += f"\n  page: {out}"
        _say(_report_data(found), text, json_wanted)
        return 0

    return _done(work, json_wanted)


def worker(
    store: str | None, processes: int | None, only: str | None, accept_code: bool, wait: float, json_wanted: bool
) -> int:
    """Serve campaigns."""

    def work() -> int:
        from tidewire._campaigns.worker_pool import serve

        _import_from_here()
        serve(store, processes, campaign=only, accept_code=accept_code, store_wait=wait)
        return 0

    return _done(work, json_wanted)


def _done(work: Callable[[], int], json_wanted: bool) -> int:
    """Return the exit code of something: that of ``fail`` after an error, 130 after Ctrl-C."""
    try:
        return work()
    except tw.TidewireError as error:
        return fail(error, json_wanted)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output, such as head, has closed it: write nothing more, not even at the
        # end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(campaign: tw.Campaign, workers: int | None, accept_code: bool, page: Path | None, json_wanted: bool) -> int:
    print(f"campaign {campaign.name}, number {campaign.id} of {shown(campaign.store)}", file=sys.stderr, flush=True)
    try:
        report = campaign.run(workers, progress=None if not json_wanted else False, accept_code=accept_code)
    except KeyboardInterrupt:
        with contextlib.suppress(tw.TidewireError):
            report = campaign.report()
            stored = f"{campaign.name} is {report.condition}: {report.done:,} of {report.runs:,} runs are stored"
            _say(_report_data(report), "\n".join([stored, *_advice(campaign, report, workers)]), json_wanted)
        raise
    if page is not None:
        report.page(page)
    _say(_report_data(report), repr(report), json_wanted)
    return 0 if report.state == "done" else 1


def _advice(campaign: tw.Campaign, status: Status, workers: int | None = None) -> Iterator[str]:
    """Yield the command that runs a campaign on, if nobody works at it."""
    if status.condition in ("interrupted", "waiting for workers"):
        count = [] if workers is None else ["--workers", str(workers)]
        store = [] if campaign.store == url_of(None) else ["--url", without_password(campaign.store)]
        yield f"continue with: {shlex.join(['tidewire', 'campaign', 'continue', campaign.name, *count, *store])}"


def _say(data: Any, text: str | None, json_wanted: bool) -> None:
    print(as_json(data) if json_wanted or text is None else text, flush=True)


def _import_from_here() -> None:
    """Let functions of the working folder be imported, as ``python`` does."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)


def _planned(function: str, store: str | None, plan: Mapping[str, Any], limits: Mapping[str, Any]) -> tw.Campaign:
    _import_from_here()
    if ":" not in function:
        if plan["runs"] is not None or plan["params"] or plan["sweep"]:
            raise InvalidArgument(
                f"MODULE:FUNCTION: {function!r} has no colon: write farm:simulate; a stored campaign keeps its plan"
            )
        return tw.open_campaign(store, function)
    if plan["runs"] is None:
        raise InvalidArgument("--runs: is missing: say how many, such as --runs 10000")
    sweep = dict(map(_listed, plan["sweep"]))
    return tw.campaign(
        function,
        runs=plan["runs"],
        seed=_integer_or_text(plan["seed"]),
        name=plan["name"],
        params=dict(_pair("--param", text) for text in plan["params"]) or None,
        sweep=tw.grid(**sweep) if sweep else None,
        until=None if plan["until"] is None else _precision(plan["until"]),
        store=store,
        **limits,
    )


def _integer_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _pair(option: str, text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidArgument(f"{option}: {text!r} is not allowed: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _listed(text: str) -> tuple[str, list[Any]]:
    name, values = _pair("--sweep", text)
    if not isinstance(values, list):
        raise InvalidArgument(f"""--sweep: {text!r} is not allowed: write a JSON list, such as '{name}=["a", "b"]'""")
    return name, values


def _precision(text: str) -> tw.Precision:
    column, *numbers = text.split(":")
    try:
        return tw.Precision(column, *map(float, numbers))
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"--until: {text!r} is not allowed: write COLUMN:HALF_WIDTH, such as area:0.001"
        ) from None


def _status_data(status: Status) -> dict[str, Any]:
    data = {field.name: getattr(status, field.name) for field in dataclasses.fields(status) if field.name != "campaign"}
    data["workers"] = [dataclasses.asdict(worker) for worker in status.workers]
    data["look"] = None if status.look is None else dataclasses.asdict(status.look)
    return {**data, "seconds_left": status.seconds_left}


def _report_data(report: tw.Report) -> dict[str, Any]:
    return {**_status_data(report), "stages": dataclasses.asdict(report.stages), "limiting": report.limiting}


def _shown(campaign: tw.Campaign, status: Status, digest: str | None) -> str:
    left = "" if status.seconds_left is None else f", {status.seconds_left:,.0f} s left"
    bad = f"{status.failed:,} failed, {status.quarantined:,} quarantined"
    working = [worker for worker in status.workers if worker.state == "working"]
    columns = ", ".join(f"{name} {kind}" for name, kind in (campaign.columns or {}).items())
    lines = [
        f"{campaign.name}, number {campaign.id} of {shown(campaign.store)}",
        f"  {campaign.function}, seed {campaign.seed}, {campaign.sets:,} parameter sets",
        f"  {status.condition}{f' ({status.reason})' if status.reason else ''}: {status.done:,} of {status.runs:,} runs, {bad}{left}",
        f"  {status.rate:,.0f} runs/s, {len(working)} workers at work, {status.losses} lost",
        f"  table {campaign.table}: {columns or 'its columns are not known yet'}",
        f"  digest {status.digest}",
    ]
    if digest is not None:
        lines.append(
            "  the stored rows have this digest"
            if digest == status.digest
            else f"  THE STORED ROWS HAVE ANOTHER: {digest}"
        )
    lines += [f"  {line}" for line in _advice(campaign, status)]
    lines += [f"  {event.at:%Y-%m-%d %H:%M:%S}  {event.after}: {event.reason}" for event in campaign.events()]
    return "\n".join(lines)
