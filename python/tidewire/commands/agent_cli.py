"""The command ``tidewire agent``."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewire.commands.stream_cli import Json, Where

agent = typer.Typer(help="Durable agents: their states, inboxes and dead letters.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="Of the agent.")]


@agent.command("ls", epilog="Example: tidewire agent ls --url data/")
def agent_ls(at: Where, json: Json = False) -> None:
    """List the durable agents that have ever run, by id."""
    from tidewire.commands import agent

    raise typer.Exit(agent.ls(at, json))


@agent.command("show", epilog="Example: tidewire agent show clerk --url tide://127.0.0.1:7420")
def agent_show(
    name: Id,
    at: Where,
    limit: Annotated[int, typer.Option("--limit", help="How many of its newest messages.", min=1, max=1_000)] = 20,
    json: Json = False,
) -> None:
    """Show a durable agent: who has it, its state, its newest messages and its dead letters."""
    from tidewire.commands import agent

    raise typer.Exit(agent.show(at, name, limit, json))


@agent.command("requeue", epilog="Example: tidewire agent requeue clerk 17 --url tide://127.0.0.1:7420")
def agent_requeue(
    name: Id,
    at: Where,
    sequences: Annotated[
        list[int] | None, typer.Argument(metavar="[SEQUENCE]...", help="Which dead letters; all if none is named.")
    ] = None,
    json: Json = False,
) -> None:
    """Send dead letters to their agent anew; exit code 1 if there were none."""
    from tidewire.commands import agent

    raise typer.Exit(agent.requeue(at, name, sequences or [], json))


@agent.command("drop", epilog="Example: tidewire agent drop clerk 17 --url tide://127.0.0.1:7420")
def agent_drop(
    name: Id,
    at: Where,
    sequences: Annotated[list[int], typer.Argument(metavar="SEQUENCE...", help="Which dead letters.")],
    json: Json = False,
) -> None:
    """Forget dead letters; exit code 1 if there were none."""
    from tidewire.commands import agent

    raise typer.Exit(agent.drop(at, name, sequences, json))
