"""The command ``tidewire command``."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewire.commands import command as work
from tidewire.commands.stream_cli import Json, Where

command = typer.Typer(help="Commands of services: long work with progress and a result.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="Of the command.")]


@command.command("ls", epilog="Example: tidewire command ls --url tide://127.0.0.1:7420 --stage running")
def command_ls(
    at: Where,
    service: Annotated[str | None, typer.Option("--service", help="Those of a service.", show_default=False)] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            "--stage", help="queued, running, succeeded, failed or cancelled: only those.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the commands, the oldest first."""
    raise typer.Exit(work.ls(at, service, stage, json))


@command.command("show", epilog="Example: tidewire command show 5f0c2a90d1e34b77 --url data/")
def command_show(name: Id, at: Where, json: Json = False) -> None:
    """Show a command, with its result or its error."""
    raise typer.Exit(work.show(at, name, json))


@command.command("watch", epilog="Example: tidewire command watch 5f0c2a90d1e34b77 --url tide://127.0.0.1:7420")
def command_watch(name: Id, at: Where, json: Json = False) -> None:
    """Print the progress of a command until it is over; exit code 1 if it has not succeeded."""
    raise typer.Exit(work.watch(at, name, json))


@command.command("cancel", epilog="Example: tidewire command cancel 5f0c2a90d1e34b77 --url tide://127.0.0.1:7420")
def command_cancel(name: Id, at: Where, json: Json = False) -> None:
    """Have a command end; exit code 1 if it was over, or being cancelled."""
    raise typer.Exit(work.cancel(at, name, json))


@command.command("retry", epilog="Example: tidewire command retry 5f0c2a90d1e34b77 --url tide://127.0.0.1:7420")
def command_retry(name: Id, at: Where, json: Json = False) -> None:
    """Have a command that has failed, or was cancelled, begin anew; exit code 1 if it is
    neither.
    """
    raise typer.Exit(work.retry(at, name, json))
