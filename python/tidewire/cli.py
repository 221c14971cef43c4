"""The command `tidewire`."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import tidewire as tw

app = typer.Typer(
    name="tidewire",
    help="One messaging runtime from a function call to a cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure this machine, beside peers in the same run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command. Exit codes: 0 all is well, 1 something was found, 2 wrong usage."""
    app()


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    """One messaging runtime from a function call to a cluster."""
    if version:
        typer.echo(f"tidewire {tw.__version__}")
        raise typer.Exit


@app.command(epilog="Example: tidewire doctor --config node.toml")
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print data instead of text.")] = False,
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file to check.", show_default=False)] = None,
) -> None:
    """Look at versions and configuration, and try the engine out. Exit code 1 if something is to be mended."""
    from tidewire._doctor import examine

    report = examine(config)
    if json:
        typer.echo(jsonlib.dumps(report, indent=2))
    else:
        _show(report)
    raise typer.Exit(1 if report["problems"] else 0)


@app.command(epilog="Example: tidewire top --node orders --interval 2")
def top(
    node: Annotated[str | None, typer.Option("--node", help="Its name or process id.", show_default=False)] = None,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one table, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one look as data, and end.")] = False,
) -> None:
    """Watch agents, pools and queues of a running node: one with tw.Node(inspect=True), or TIDEWIRE_INSPECT=1."""
    from tidewire.top.command import top

    raise typer.Exit(top(node, interval, once, json))


@bench.command(
    "engine",
    epilog="Example: tidewire bench engine --only A1,A2 --json",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def bench_engine(context: typer.Context) -> None:
    """The engine beside kameo, ractor, actix, Pekko, channels, asyncio and thread queues. All options: --help."""
    from tidewire.bench import engine

    raise typer.Exit(engine.main(list(context.args)))


@bench.command(
    "agents",
    epilog="Example: tidewire bench agents --only G1,W3 --json",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def bench_agents(context: typer.Context) -> None:
    """Agents and pools beside asyncio, concurrent.futures, multiprocessing and Ray. All options: --help."""
    from tidewire.bench import agents

    raise typer.Exit(agents.main(list(context.args)))


def _show(report: dict[str, Any]) -> None:
    console = Console(highlight=False)
    lock = "with the interpreter lock" if report["interpreter_lock"] else "free-threaded"
    console.print(
        f"tidewire {report['tidewire']}, Python {report['python']} ({lock}), {report['cores']} cores, {report['platform']}"
    )
    if report["configuration"]:
        console.print("\nconfiguration in force", style="bold")
        console.print(report["configuration"].rstrip(), markup=False)
    if report["checks"]:
        console.print("\ntried out", style="bold")
    for name, micros in report["checks"].items():
        console.print(f"  {name}: {micros:,} us")
    for problem in report["problems"]:
        console.print(f"[red]to mend:[/red] {problem}")
    if not report["problems"]:
        console.print("[green]nothing to mend[/green]")
