"""The options of ``tidewire campaign ...`` and ``tidewire worker``. Their implementation is in
``campaign.py``, which is loaded on the first call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidewire.commands.output import Level, LogFormat, LogLevel, log_to_stderr

campaign = typer.Typer(
    help="Run a function many times over worker processes, each run stored once.", no_args_is_help=True
)

Store = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=["TIDEWIRE_STORE", "TIDEWIRE_URL"],
        help="Of the store: sqlite:///farm.db or postgres://user@host/db.",
        show_default="sqlite:///tidewire.db",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print data instead of text.")]
Name = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Its name or number.")]
Reason = Annotated[str, typer.Option("--reason", help="Is kept with the change.")]
AcceptCode = Annotated[
    bool, typer.Option("--accept-code", help="Work although the code has changed; the store notes it.")
]

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", help="Processes; 0 waits for those of 'tidewire worker'.", show_default="one for each processor"
    ),
]
Page = Annotated[Path | None, typer.Option("--page", help="Write the report as a page, too.", show_default=False)]


@campaign.command(
    "run",
    epilog="Example: tidewire campaign run farm:simulate --runs 500000 --seed 7 --param steps=83 --workers 2 --url sqlite:///farm.db",
)
def run(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION", help="What runs; or the name or number of a stored campaign, to go on with it."
        ),
    ],
    runs: Annotated[
        int | None, typer.Option("--runs", help="How many, over all parameter sets.", show_default=False)
    ] = None,
    seed: Annotated[str, typer.Option("--seed", help="An integer, or text.")] = "0",
    name: Annotated[
        str | None,
        typer.Option("--name", help="In the store; goes on with it if the plan is the same.", show_default=False),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="JSON or text; may be given again.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="NAME=[VALUES]",
            help="A JSON list; may be given again: every combination is a parameter set.",
        ),
    ] = None,
    workers: Workers = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="COLUMN:HALF_WIDTH[:CONFIDENCE]",
            help="End once this mean is known so well.",
            show_default=False,
        ),
    ] = None,
    attempts: Annotated[int, typer.Option("--attempts", help="How often a run is tried that raises.")] = 3,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds that a run may take.", show_default=False)
    ] = None,
    failed_max: Annotated[
        int | None,
        typer.Option("--failed-max", help="The campaign fails when more runs have failed.", show_default=False),
    ] = None,
    accept_code: AcceptCode = False,
    page: Page = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Run a campaign to its end, and print its report. Exit code 1 if it did not get done. Ctrl-C
    keeps what is stored, and prints the command that goes on with it.
    """
    from tidewire.commands import campaign as work

    plan = {"runs": runs, "seed": seed, "name": name, "params": param or [], "sweep": sweep or [], "until": until}
    limits = {"attempts": attempts, "timeout": timeout, "failed_max": failed_max, "accept_code": accept_code}
    raise typer.Exit(work.run(function, store, plan, limits, workers, page, json))


@campaign.command("continue", epilog="Example: tidewire campaign continue pi --workers 2")
def continue_(
    name: Name,
    workers: Workers = None,
    accept_code: AcceptCode = False,
    page: Page = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Run a stored campaign to its end, and print its report. The store has its function,
    parameters and limits. Exit code 1 if it did not get done.
    """
    from tidewire.commands import campaign as work

    raise typer.Exit(work.go_on(name, store, workers, accept_code, page, json))


@campaign.command("list", epilog="Example: tidewire campaign list --url sqlite:///farm.db")
def list_(store: Store = None, json: Json = False) -> None:
    """List the campaigns of a store, newest first."""
    from tidewire.commands import campaign as work

    raise typer.Exit(work.list_all(store, json))


@campaign.command(epilog="Example: tidewire campaign show pi --verify")
def show(
    name: Name,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all rows, and compare their digest with that of the campaign.")
    ] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show counters, workers and events of a campaign. Exit code 1 if --verify finds other rows
    than were stored.
    """
    from tidewire.commands import campaign as work

    raise typer.Exit(work.show(name, store, verify, json))


@campaign.command(epilog="Example: tidewire campaign pause pi --reason 'the machine is needed'")
def pause(name: Name, reason: Reason = "", store: Store = None, json: Json = False) -> None:
    """Pause a campaign: what its workers hold is still stored."""
    from tidewire.commands import campaign as work

    raise typer.Exit(work.change(name, store, "pause", reason, json))


@campaign.command(epilog="Example: tidewire campaign resume pi")
def resume(name: Name, reason: Reason = "", store: Store = None, json: Json = False) -> None:
    """Let a paused campaign go on: workers that wait for it do. Exit code 1 if its program is gone,
    with the command that continues it.
    """
    from tidewire.commands import campaign as work

    raise typer.Exit(work.change(name, store, "resume", reason, json))


@campaign.command(epilog="Example: tidewire campaign cancel pi --reason 'a wrong parameter'")
def cancel(name: Name, reason: Reason = "", store: Store = None, json: Json = False) -> None:
    """End a campaign for good. Its stored data stays."""
    from tidewire.commands import campaign as work

    raise typer.Exit(work.change(name, store, "cancel", reason, json))


@campaign.command(epilog="Example: tidewire campaign errors pi --max 5")
def errors(
    name: Name,
    max: Annotated[int, typer.Option("--max", min=1, help="How many at most.")] = 20,
    tracebacks: Annotated[bool, typer.Option("--tracebacks", help="Print tracebacks, too.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show the runs that failed or were quarantined."""
    from tidewire.commands import campaign as work

    raise typer.Exit(work.errors(name, store, max, tracebacks, json))


@campaign.command(epilog="Example: tidewire campaign summary races --by strategy")
def summary(
    name: Name,
    by: Annotated[list[str] | None, typer.Option("--by", help="A parameter or column; may be given again.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Print statistics of the numeric columns."""
    from tidewire.commands import campaign as work

    raise typer.Exit(work.summary(name, store, by or [], json))


@campaign.command(epilog="Example: tidewire campaign export pi pi.parquet")
def export(
    name: Name,
    path: Annotated[
        str, typer.Argument(help="A file that ends in .csv or .parquet; - for CSV on the standard output.")
    ],
    store: Store = None,
    json: Json = False,
) -> None:
    """Write the results to a file, at constant memory."""
    from tidewire.commands import campaign as work

    raise typer.Exit(work.export(name, store, path, json))


@campaign.command(epilog="Example: tidewire campaign report pi --out report.html")
def report(
    name: Name,
    out: Annotated[Path | None, typer.Option("--out", help="Write a page with pictures.", show_default=False)] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Print the report of a campaign: its rate, where the time went, and which stage limits it."""
    from tidewire.commands import campaign as work

    raise typer.Exit(work.report(name, store, out, json))


def worker(
    url: Annotated[str | None, typer.Argument(hidden=True)] = None,
    store: Store = None,
    processes: Annotated[
        int | None, typer.Option("--processes", help="How many.", show_default="one for each processor")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--campaign", help="Serve this one alone, by name or number.", show_default=False)
    ] = None,
    accept_code: AcceptCode = False,
    wait: Annotated[float, typer.Option("--wait", help="Seconds in which it waits for a store that is away.")] = 60.0,
    log_level: LogLevel = Level.info,
    log_format: LogFormat = None,
    json: Json = False,
) -> None:
    """Work at the campaigns of a store until SIGTERM or Ctrl-C. It needs the store and the code,
    which is imported from the working folder, too. The standard error gets the log: progress, and
    workers that were lost.
    """
    from tidewire.commands import campaign as work

    log_to_stderr(log_level, log_format, json)
    raise typer.Exit(work.worker(url or store, processes, only, accept_code, wait, json))
