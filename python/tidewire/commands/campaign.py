"""``tidewire campaign ...`` and ``tidewire worker``: campaigns of a store from the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json as jsonlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tidewire as tw
from tidewire._campaigns.store import shown, url_of, without_password
from tidewire.commands.output import (
    Level,
    LogFormat,
    LogLevel,
    again,
    as_json,
    fail,
    log_to_stderr,
    option,
    print_table,
    stop_output,
)
from tidewire.commands.place import Json, with_options
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._campaigns.report import Status

campaign = typer.Typer(
    help="Run a function many times over worker processes, each run stored once.", no_args_is_help=True
)

_STORE = "Of the store: sqlite:///farm.db or postgres://user@host/db."
_STORES = ["TIDEWIRE_STORE", "TIDEWIRE_URL"]
Store = Annotated[str | None, option("--url", _STORE, shown="sqlite:///tidewire.db", envvar=_STORES)]
Name = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Its name or number.")]
Reason = Annotated[str, typer.Option("--reason", help="Is kept with the change.")]
AcceptCode = Annotated[bool, option("--accept-code", "Work although the code has changed; the store notes it.")]

_WORKERS = "Processes; 0 waits for those of 'tidewire worker'."
Workers = Annotated[int | None, option("--workers", _WORKERS, shown="one for each processor")]
Page = Annotated[Path | None, option("--page", "Write the report as a page, too.")]
_OUTPUT = "-"


def _with_store(work: Callable[..., int | None]) -> Callable[..., None]:
    """Make a command of a function with the URL of a store and a flag to print data. Its result is
    the exit code, or 0 for None. After an error it is that of ``fail``, after Ctrl-C 130.
    """

    def command(store: Store = None, json: Json = False, **own: Any) -> None:
        try:
            code = work(store, json, **own) or 0
        except tw.TidewireError as error:
            code = fail(error, json)
        except KeyboardInterrupt:
            code = 130
        except BrokenPipeError:
            code = stop_output()
        raise typer.Exit(code)

    return with_options(command, work, 2)


@campaign.command(
    "run",
    epilog="Example: tidewire campaign run farm:simulate --runs 500000 --seed 7 --param steps=83 --workers 2 --url sqlite:///farm.db",
)
@_with_store
def run(
    store: str | None,
    json: bool,
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="The function to run; or the name or number of a stored campaign to continue.",
        ),
    ],
    runs: Annotated[int | None, option("--runs", "How many, over all parameter sets.")] = None,
    seed: Annotated[str, typer.Option("--seed", help="An integer, or text.")] = "0",
    name: Annotated[str | None, option("--name", "In the store; goes on with it if the plan is the same.")] = None,
    param: Annotated[list[str] | None, again("--param", "JSON or text", "NAME=VALUE")] = None,
    sweep: Annotated[
        list[str] | None,
        option("--sweep", "A JSON list; may be given again: every combination is a parameter set.", "NAME=[VALUES]"),
    ] = None,
    workers: Workers = None,
    until: Annotated[
        str | None, option("--until", "End once this mean is known so well.", metavar="COLUMN:HALF_WIDTH[:CONFIDENCE]")
    ] = None,
    attempts: Annotated[int, typer.Option("--attempts", help="How often a run is tried that raises.")] = 3,
    timeout: Annotated[float | None, option("--timeout", "Seconds that a run may take.")] = None,
    failed_max: Annotated[int | None, option("--failed-max", "The campaign fails when more runs have failed.")] = None,
    accept_code: AcceptCode = False,
    page: Page = None,
) -> int:
    """Run a campaign to its end, and print its report. Exit code 1 if it did not get done. Ctrl-C
    keeps what is stored, and prints the command that goes on with it.
    """
    from tidewire._campaigns.supervisor import checked_workers

    plan = {"runs": runs, "seed": seed, "name": name, "params": param or [], "sweep": sweep or [], "until": until}
    limits = {"attempts": attempts, "timeout": timeout, "failed_max": failed_max, "accept_code": accept_code}
    # Checked before the plan is stored.
    checked_workers("--workers", workers, least=0)
    return _run(_plan_campaign(function, store, plan, limits), workers, accept_code, page, json)


@campaign.command("continue", epilog="Example: tidewire campaign continue pi --workers 2")
@_with_store
def continue_(
    store: str | None,
    json: bool,
    name: Name,
    workers: Workers = None,
    accept_code: AcceptCode = False,
    page: Page = None,
) -> int:
    """Run a stored campaign to its end, and print its report. The store has its function,
    parameters and limits. Exit code 1 if it did not get done.
    """
    _add_working_folder()
    return _run(tw.open_campaign(store, name), workers, accept_code, page, json)


@campaign.command("list", epilog="Example: tidewire campaign list --url sqlite:///farm.db")
@_with_store
def list_(store: str | None, json: bool) -> None:
    """List the campaigns of a store, newest first."""
    found = [(campaign, campaign.status()) for campaign in tw.campaigns(store)]
    if json:
        names = ("id", "name", "state", "condition", "runs", "done", "failed", "quarantined", "rate")
        data = [{name: getattr(status, name) for name in names} for _, status in found]
        _say([{**row, "created": str(one.created)} for row, (one, _) in zip(data, found, strict=True)], None, True)
        return
    if not found:
        print("no campaigns")
        return
    rows = []
    for one, status in found:
        counts = (f"{status.done:,}", f"{status.runs:,}", f"{status.failed + status.quarantined:,}")
        rows.append((str(one.id), one.name, status.condition, *counts, f"{one.created:%Y-%m-%d %H:%M}"))
    print_table((">number", "name", "state", ">done", ">runs", ">failed", "created"), rows)


@campaign.command(epilog="Example: tidewire campaign show pi --verify")
@_with_store
def show(
    store: str | None,
    json: bool,
    name: Name,
    verify: Annotated[
        bool, option("--verify", "Read all rows, and compare their digest with that of the campaign.")
    ] = False,
) -> int:
    """Show counters, workers and events of a campaign. Exit code 1 if --verify finds other rows
    than were stored.
    """
    campaign = tw.open_campaign(store, name)
    status = campaign.status()
    digest = campaign.verify() if verify else None
    is_verified = digest is None or digest == status.digest
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
        data.update(digest_of_rows=digest, verified=is_verified)
    _say(data, _description(campaign, status, digest), json)
    return 0 if is_verified else 1


@campaign.command(epilog="Example: tidewire campaign pause pi --reason 'the machine is needed'")
@_with_store
def pause(store: str | None, json: bool, name: Name, reason: Reason = "") -> int:
    """Pause a campaign: what its workers hold is still stored."""
    return _change(name, store, "pause", reason, json)


@campaign.command(epilog="Example: tidewire campaign resume pi")
@_with_store
def resume(store: str | None, json: bool, name: Name, reason: Reason = "") -> int:
    """Let a paused campaign go on: workers that wait for it do. Exit code 1 if its program is gone,
    with the command that continues it.
    """
    return _change(name, store, "resume", reason, json)


@campaign.command(epilog="Example: tidewire campaign cancel pi --reason 'a wrong parameter'")
@_with_store
def cancel(store: str | None, json: bool, name: Name, reason: Reason = "") -> int:
    """End a campaign for good. Its stored data stays."""
    return _change(name, store, "cancel", reason, json)


@campaign.command(epilog="Example: tidewire campaign errors pi --max 5")
@_with_store
def errors(
    store: str | None,
    json: bool,
    name: Name,
    max: Annotated[int, typer.Option("--max", min=1, help="How many at most.")] = 20,
    tracebacks: Annotated[bool, typer.Option("--tracebacks", help="Print tracebacks, too.")] = False,
) -> None:
    """Show the runs that failed or were quarantined."""
    failures = list(itertools.islice(tw.open_campaign(store, name).errors(), max))
    lines = [
        f"run {one.run:,}  {one.kind} after {one.attempts} attempts  {one.error}: {one.message}" for one in failures
    ]
    if tracebacks:
        lines = [f"{line}\n{one.traceback}" for line, one in zip(lines, failures, strict=True)]
    _say([dataclasses.asdict(one) for one in failures], "\n".join(lines) or "no run has failed", json)


@campaign.command(epilog="Example: tidewire campaign summary races --by strategy")
@_with_store
def summary(
    store: str | None,
    json: bool,
    name: Name,
    by: Annotated[list[str] | None, typer.Option("--by", help="A parameter or column; may be given again.")] = None,
) -> None:
    """Print statistics of the numeric columns."""
    statistics = tw.open_campaign(store, name).summary(by=by or [])
    _say(statistics.asdicts(), repr(statistics) if statistics else "no numeric columns yet", json)


@campaign.command(epilog="Example: tidewire campaign export pi pi.parquet")
@_with_store
def export(
    store: str | None,
    json: bool,
    name: Name,
    path: Annotated[
        str, typer.Argument(help="A file that ends in .csv or .parquet; - for CSV on the standard output.")
    ],
) -> None:
    """Write the results to a file, at constant memory."""
    campaign = tw.open_campaign(store, name)
    if path == _OUTPUT:
        campaign.to_csv(sys.stdout)
        return
    if path.endswith(".csv"):
        rows = campaign.to_csv(path)
    elif path.endswith(".parquet"):
        rows = campaign.to_parquet(path)
    else:
        raise InvalidArgument(f"PATH: {path!r} is not allowed: let it end in .csv or .parquet, or be {_OUTPUT}")
    _say({"path": path, "rows": rows}, f"{rows:,} rows are in {path}", json)


@campaign.command(epilog="Example: tidewire campaign report pi --out report.html")
@_with_store
def report(
    store: str | None,
    json: bool,
    name: Name,
    out: Annotated[Path | None, option("--out", "Write a page with pictures.")] = None,
) -> None:
    """Print the report of a campaign: its rate, where the time went, and which stage limits it."""
    result = tw.open_campaign(store, name).report()
    text = repr(result)
    if out is not None:
        result.page(out)
        text += f"\n  page: {out}"
    _say(_report_data(result), text, json)


@_with_store
def worker(
    store: str | None,
    json: bool,
    url: Annotated[str | None, typer.Argument(hidden=True)] = None,
    processes: Annotated[int | None, option("--processes", "How many.", shown="one for each processor")] = None,
    only: Annotated[str | None, option("--campaign", "Serve this one alone, by name or number.")] = None,
    accept_code: AcceptCode = False,
    wait: Annotated[float, typer.Option("--wait", help="Seconds in which it waits for a store that is away.")] = 60.0,
    log_level: LogLevel = Level.info,
    log_format: LogFormat = None,
) -> None:
    """Work at the campaigns of a store until SIGTERM or Ctrl-C. It needs the store and the code,
    which is imported from the working folder, too. The standard error gets the log: progress, and
    workers that were lost.
    """
    from tidewire._campaigns.worker_pool import serve

    log_to_stderr(log_level, log_format, json)
    _add_working_folder()
    serve(url or store, processes, campaign=only, accept_code=accept_code, store_wait=wait)


def _change(name: str, store: str | None, change: str, reason: str, json: bool) -> int:
    """Pause, resume or cancel a campaign. Return 1 if it is resumed and no program runs it."""
    campaign = tw.open_campaign(store, name)
    getattr(campaign, change)(reason)
    status = campaign.status()
    data = {name: getattr(status, name) for name in ("id", "name", "state", "condition")}
    _say(data, "\n".join([f"{campaign.name} is {status.condition}", *_advice(campaign, status)]), json)
    return 1 if status.condition == "interrupted" else 0


def _run(campaign: tw.Campaign, workers: int | None, accept_code: bool, page: Path | None, json: bool) -> int:
    print(f"campaign {campaign.name}, number {campaign.id} of {shown(campaign.store)}", file=sys.stderr, flush=True)
    try:
        report = campaign.run(workers, progress=None if not json else False, accept_code=accept_code)
    except KeyboardInterrupt:
        with contextlib.suppress(tw.TidewireError):
            report = campaign.report()
            stored = f"{campaign.name} is {report.condition}: {report.done:,} of {report.runs:,} runs are stored"
            _say(_report_data(report), "\n".join([stored, *_advice(campaign, report, workers)]), json)
        raise
    if page is not None:
        report.page(page)
    _say(_report_data(report), repr(report), json)
    return 0 if report.state == "done" else 1


def _advice(campaign: tw.Campaign, status: Status, workers: int | None = None) -> Iterator[str]:
    """Yield the command that continues a campaign, if no worker runs it."""
    if status.condition in ("interrupted", "waiting for workers"):
        count = [] if workers is None else ["--workers", str(workers)]
        store = [] if campaign.store == url_of(None) else ["--url", without_password(campaign.store)]
        yield f"continue with: {shlex.join(['tidewire', 'campaign', 'continue', campaign.name, *count, *store])}"


def _say(data: Any, text: str | None, json: bool) -> None:
    print(as_json(data) if json or text is None else text, flush=True)


def _add_working_folder() -> None:
    """Add the working folder to the import path, as ``python`` does."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _plan_campaign(function: str, store: str | None, plan: Mapping[str, Any], limits: Mapping[str, Any]) -> tw.Campaign:
    _add_working_folder()
    if ":" not in function:
        if plan["runs"] is not None or plan["params"] or plan["sweep"]:
            raise InvalidArgument(
                f"MODULE:FUNCTION: {function!r} has no colon: write farm:simulate; a stored campaign keeps its plan"
            )
        return tw.open_campaign(store, function)
    if plan["runs"] is None:
        raise InvalidArgument("--runs: is missing: give a number, such as --runs 10000")
    sweep = dict(map(_sweep_axis, plan["sweep"]))
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
        return name, jsonlib.loads(value)
    except ValueError:
        return name, value


def _sweep_axis(text: str) -> tuple[str, list[Any]]:
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


def _description(campaign: tw.Campaign, status: Status, digest: str | None) -> str:
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
