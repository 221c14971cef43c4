"""The command `tidewire`."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

import tidewire as tw
from tidewire._urls import NATS, SCHEMES
from tidewire.commands import talk
from tidewire.commands.agent import agent
from tidewire.commands.campaign import campaign, worker
from tidewire.commands.command import command
from tidewire.commands.kv import kv
from tidewire.commands.output import Level, LogFormat, LogLevel, again, escape_in, log_to_stderr, option
from tidewire.commands.stream import crashtest, log, stream
from tidewire.commands.talk import HUB_URL, All, Ca, Cert, Hub, Key, TokenText, Url

app = typer.Typer(
    name="tidewire",
    help="One messaging runtime from a function call to a cluster.",
    no_args_is_help=True,
    # Older spellings stay valid. The help shows one word for an address.
    context_settings={"token_normalize_func": lambda word: "url" if word in ("at", "store") else word},
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure this machine, beside peers in the same run.", no_args_is_help=True)
generate = typer.Typer(help="Write code for other languages.", no_args_is_help=True)
app.add_typer(generate, name="generate")
app.add_typer(bench, name="bench")
app.add_typer(campaign, name="campaign")
app.add_typer(stream, name="stream")
app.add_typer(kv, name="kv")
app.add_typer(log, name="log")
app.add_typer(command, name="command")
app.add_typer(agent, name="agent")
app.command(epilog="""Example: tidewire pub orders.created '{"id": 7}'""")(talk.pub)
app.command(epilog="Example: tidewire sub 'orders.>' --count 10")(talk.sub)
app.command(epilog="""Example: tidewire req pricing.quote '"X"' --timeout 2""")(talk.req)
app.command(epilog="Example: tidewire call pricing.quote X qty=3")(talk.call)
app.command(epilog="Example: tidewire services --json")(talk.services)
app.command(epilog="Example: tidewire nodes --json")(talk.nodes)
app.command(epilog="Example: tidewire agents --json")(talk.agents)
app.command("crashtest", epilog="Example: tidewire crashtest --data /tmp/new --kills 100")(crashtest)
app.command(epilog="Example: tidewire worker --url postgres://user@host/db --processes 4")(worker)


def main() -> None:
    """Run the command. Exit codes: 0 success, 1 failure or a finding, 2 wrong usage, 3 a hub, a
    server or a store is unreachable.
    """
    for output in (sys.stdout, sys.stderr):
        escape_in(output)
    app()


OPTIONS_OF_ITS_OWN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of commands that parse their own options."""


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    """One messaging runtime from a function call to a cluster."""
    if version:
        typer.echo(f"tidewire {tw.__version__}")
        raise typer.Exit


@app.command(epilog="Example: tidewire doctor tide://127.0.0.1:7420")
def doctor(
    target: Annotated[
        str | None,
        typer.Argument(
            help="The URL of a hub, of NATS or of a campaign store, or a data folder.", show_default="this installation"
        ),
    ] = None,
    token: TokenText = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    json: Annotated[bool, typer.Option("--json", help="Print data instead of text.")] = False,
    config: Annotated[Path | None, option("--config", "A TOML file to check.")] = None,
) -> None:
    """Try a hub, NATS, a data folder or a campaign store, and say whether it works. Without a
    target, look at versions and configuration, and try the engine out. Exit code 1 if there is a
    problem to fix, 3 if the target can't be reached.
    """
    from tidewire.commands.self_check import examine

    if target is not None:
        from tidewire.commands.doctor import doctor

        raise typer.Exit(doctor(target, Hub(target, token, json, files=(ca, cert, key))))
    report = examine(config)
    if json:
        typer.echo(jsonlib.dumps(report, indent=2))
    else:
        _show(report)
    raise typer.Exit(1 if report["problems"] else 0)


@app.command(epilog="Example: tidewire health http://127.0.0.1:8080 --timeout 2")
def health(
    url: Annotated[str, typer.Argument(help="The URL of a hub, of NATS, or of the HTTP gateway of a hub.")],
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds until it counts as not reachable.")] = 2.0,
    token: TokenText = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    json: Annotated[bool, typer.Option("--json", help="Print data instead of text.")] = False,
) -> None:
    """Ask a hub whether it is ready, as a probe of a container does. Exit code 0 if it is, 1 if
    not, 3 if it can't be reached in time.
    """
    from tidewire.commands.health import health

    raise typer.Exit(health(Hub(url, token, json, files=(ca, cert, key)), timeout))


@app.command(
    epilog="Example: tidewire up --listen tide://127.0.0.1:7420 --listen tide+unix:///run/user/1000/tidewire.sock"
)
def up(
    listen: Annotated[list[str] | None, again("--listen", "Where nodes join", shown=HUB_URL)] = None,
    http: Annotated[
        list[str] | None,
        again("--http", "Where public services are called over HTTP, such as 127.0.0.1:8080", "HOST:PORT"),
    ] = None,
    cors: Annotated[
        list[str] | None,
        again(
            "--cors", "Pages of this origin may call over HTTP, such as https://shop.example, or * for all", "ORIGIN"
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        again("--host", "A name of the HTTP gateway of a hub without tokens, besides localhost", "NAME"),
    ] = None,
    http_files: Annotated[
        Path | None,
        option("--http-files", "A folder whose files, read at the start, everybody gets over HTTP at /files/.", "DIR"),
    ] = None,
    console: Annotated[bool, typer.Option("--console", help="Serve the operator console at /console/.")] = False,
    console_admin: Annotated[bool, typer.Option("--console-admin", help="Without tokens, let it act, too.")] = False,
    name: Annotated[str | None, option("--name", "Of the hub.")] = None,
    config: Annotated[Path | None, option("--config", "A TOML file; its table hub has these options, too.")] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(
            "--token",
            help="Only nodes with it may join, and may do everything: SECRET or USER:SECRET; may be given again. What a token "
            "allows, and its limits, go in tables hub.tokens of the --config file, which also hides it: others can read a "
            "command line.",
        ),
    ] = None,
    inspect_token: Annotated[
        list[str] | None, again("--inspect-token", "A token that looks in the console, and sees no payload", "TOKEN")
    ] = None,
    admin_token: Annotated[
        list[str] | None, again("--admin-token", "A token that looks, reads payloads and acts in the console", "TOKEN")
    ] = None,
    insecure: Annotated[
        bool, option("--insecure", "Listen where other machines can reach it, without TLS or a token.")
    ] = False,
    cert: Annotated[Path | None, option("--cert", "PEM file of the certificate, for tide+tls:// and wss://.")] = None,
    key: Key = None,
    ca: Annotated[
        Path | None, option("--ca", "PEM file: only nodes with a certificate signed by one in it may join.")
    ] = None,
    timeout: Annotated[float | None, option("--timeout", "Seconds for calls to end when it stops.", shown="10")] = None,
    data: Annotated[
        Path | None, option("--data", "A folder with streams, buckets and leases for all that join.")
    ] = None,
    nats: Annotated[
        str | None,
        option(
            "--nats",
            "Servers of NATS, such as nats://127.0.0.1:4222: those that join, and clients over HTTP, reach the services of the cluster "
            "there, and streams live in JetStream. A URL with a password goes in the --config file: others can read a command line.",
            "URL",
        ),
    ] = None,
    join: Annotated[
        str | None,
        option(
            "--join",
            "Another hub to join, and to share names with. Tables hub.join of the --config file name more.",
            "URL",
        ),
    ] = None,
    as_: Annotated[
        str | None, option("--as", "The name of this hub there; also its own without --name.", "NAME")
    ] = None,
    export: Annotated[
        list[str] | None,
        again(
            "--export",
            "Names that it shares there, with commas: services, NAME=ALIAS, subjects such as orders.>",
            "NAMES",
        ),
    ] = None,
    import_: Annotated[
        list[str] | None,
        again(
            "--import",
            "Names that it imports from there, after the name of that hub: paris:billing,paris:news.>",
            "NAMES",
        ),
    ] = None,
    join_token: Annotated[
        str | None,
        typer.Option(
            "--join-token",
            envvar="TIDEWIRE_JOIN_TOKEN",
            metavar="SECRET",
            help="Its token there. The variable or the --config file hides it: others can read a command line.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        again("--set", "A key of the configuration, such as links.link_heartbeat_ms=1000", "KEY=VALUE"),
    ] = None,
    log_level: LogLevel = Level.info,
    log_format: LogFormat = None,
    json: Annotated[bool, typer.Option("--json", help="Print data instead of text.")] = False,
) -> None:
    """Run a hub until SIGTERM or Ctrl-C: prints one line with its URLs when nodes can join, and
    ends with a stop report. The standard error gets the log: nodes that join and leave, and
    refusals.
    """
    from tidewire.commands.up import up

    log_to_stderr(log_level, log_format, json)
    options: dict[str, Any] = {"name": name, "timeout": timeout, "nats": nats, "data": data, "http_files": http_files}
    options |= {"cert": cert, "key": key, "ca": ca, "insecure": insecure or None}
    options |= {"console": console or console_admin or None, "console_admin": console_admin or None}
    for several, given in (("listen", listen), ("http", http), ("cors", cors), ("hosts", hosts)):
        options[several] = tuple(given) if given else None
    tokens = {"": token or [], "inspect": inspect_token or [], "admin": admin_token or []}
    joins = (join, as_, export or [], import_ or [], join_token)
    raise typer.Exit(up(config, options, tokens, settings or [], json, joins=joins))


@app.command(epilog="Example: tidewire console --data orders-data")
def console(
    url: Annotated[str, typer.Argument(help="Its HTTP address.")] = "http://127.0.0.1:8420",
    data: Annotated[Path | None, option("--data", "Start a hub of this folder.")] = None,
) -> None:
    """Open the operator console of a hub, or of a data folder, in the browser."""
    from tidewire.commands.console import console

    raise typer.Exit(console(url, data))


@app.command(epilog="Example: tidewire mcp --url http://127.0.0.1:8080")
def mcp(
    url: Annotated[str | None, typer.Argument(hidden=True)] = None,
    gateway: Annotated[
        str, typer.Option("--url", envvar="TIDEWIRE_URL", help="The HTTP gateway of a hub (tidewire up --http).")
    ] = "http://127.0.0.1:8080",
    token: TokenText = None,
) -> None:
    """Offer the public methods of a hub as tools (MCP) over stdin and stdout."""
    from tidewire.commands.mcp import mcp

    raise typer.Exit(mcp(url or gateway, token))


@generate.command("ts", epilog="Example: tidewire generate ts --url ws://127.0.0.1:7421 --out src/services.ts")
def generate_ts(
    place: Annotated[str | None, typer.Argument(hidden=True)] = None,
    url: Url = HUB_URL,
    out: Annotated[Path | None, option("--out", "The file to write; else it is printed.")] = None,
    no_bigint: Annotated[
        bool, option("--no-bigint", "Integers are number alone: for services that stay within 2^53.")
    ] = False,
    all: All = False,
    token: TokenText = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
) -> None:
    """TypeScript interfaces of the services of a hub, from their schemas: for
    `node.client<Services["name"]>("name")`.
    """
    raise typer.Exit(talk.generate_ts(Hub(place or url, token, False, files=(ca, cert, key)), out, all, not no_bigint))


@app.command(epilog="Example: tidewire top --node orders --interval 2")
def top(
    node: Annotated[str | None, option("--node", "Its name or process id.")] = None,
    url: Annotated[
        str | None,
        option(
            "--url", "A hub whose nodes to watch.", shown="TIDEWIRE_URL if it is a hub, else the nodes of this user"
        ),
    ] = None,
    token: TokenText = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one table, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one look as data, and end.")] = False,
) -> None:
    """Watch agents, pools and queues of a running node: one with tw.Node(inspect=True), or
    TIDEWIRE_INSPECT=1.
    """
    from tidewire.top.command import top

    # A folder or a store of the environment has no nodes.
    named = os.environ.get("TIDEWIRE_URL", "")
    url = named if url is None and named.startswith((*NATS, *(f"{scheme}://" for scheme in SCHEMES))) else url
    raise typer.Exit(top(Hub(url or "", token, False, files=(ca, cert, key)), node, interval, once, json))


_BENCHES = {
    "engine": (
        "--only A1,A2 --json",
        "The engine beside kameo, ractor, actix, Pekko, channels, asyncio and thread queues.",
    ),
    "agents": ("--only G1,W3 --json", "Agents and pools beside asyncio, concurrent.futures, multiprocessing and Ray."),
    "rpc": ("--only small --peers nats", "Calls between processes beside NATS, WebSocket, gRPC, zenoh and others."),
    "http": ("--repeat 3", "JSON over HTTP through the gateway of a hub, beside axum, and FastAPI on uvicorn."),
    "streams": ("--short", "Durable streams beside SQLite, JetStream, Redis and a bare file."),
    "campaigns": (
        "--only tiny --peers 'tidewire,multiprocessing.Pool'",
        "Seeded runs over worker processes beside Pool, Dramatiq, Celery, Taskiq, Ray and Dask.",
    ),
}


def _bench(context: typer.Context) -> None:
    from tidewire.commands.bench import bench

    raise typer.Exit(bench(str(context.info_name), context.args))


for _name, (_options, _help) in _BENCHES.items():
    bench.command(
        _name,
        help=f"{_help} All options: --help.",
        epilog=f"Example: tidewire bench {_name} {_options}",
        context_settings=OPTIONS_OF_ITS_OWN,
    )(_bench)


def _show(report: dict[str, Any]) -> None:
    console = Console(highlight=False)
    lock = "with the interpreter lock" if report["interpreter_lock"] else "free-threaded"
    for problem in report["problems"]:
        console.print(f"[red]problem:[/red] {problem}")
    if not report["problems"]:
        console.print("[green]no problems[/green]")
    console.print(
        f"tidewire {report['tidewire']}, Python {report['python']} ({lock}), {report['cores']} cores, {report['platform']}"
    )
    packages = (f"{name} {version or 'is not installed'}" for name, version in report["packages"].items())
    console.print(f"optional packages: {', '.join(packages)}")
    if report["configuration"]:
        console.print("\nconfiguration in force", style="bold")
        console.print(report["configuration"].rstrip(), markup=False)
    if report["threads_max"]:
        console.print("\nmost threads for handlers, spare threads included", style="bold")
    for name, most in report["threads_max"].items():
        console.print(f"  {name}: {most}", markup=False)
    if report["checks"]:
        console.print("\ntried out", style="bold")
    for name, micros in report["checks"].items():
        console.print(f"  {name}: {micros:,} us")


_PANELS = {
    "Hubs and their state": ("up", "doctor", "health", "nodes", "services", "agents", "top", "console"),
    "Messages and calls": ("call", "req", "pub", "sub", "mcp", "generate"),
    "Stored data": ("stream", "kv", "command", "agent", "log", "crashtest"),
    "Campaigns and measurements": ("campaign", "worker", "bench"),
}
_ORDER = [name for names in _PANELS.values() for name in names]


class _Commands(TyperGroup):
    """The commands of the help, in the order of their groups."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=_ORDER.index)


app.info.cls = _Commands
_all: list[Any] = [*app.registered_commands, *app.registered_groups]
for _one in _all:
    _one.rich_help_panel = next(panel for panel, ns in _PANELS.items() if (_one.name or _one.callback.__name__) in ns)
