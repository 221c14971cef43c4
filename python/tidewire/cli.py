"""The command `tidewire`."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

import tidewire as tw
from tidewire._urls import NATS, SCHEMES
from tidewire.commands.agent import agent
from tidewire.commands.campaign_cli import campaign, worker
from tidewire.commands.command import command
from tidewire.commands.kv import kv
from tidewire.commands.output import Level, LogFormat, LogLevel, escape_in, log_to_stderr
from tidewire.commands.place import Json, with_options
from tidewire.commands.stream import crashtest, log, stream

app = typer.Typer(
    name="tidewire",
    help="One messaging runtime from a function call to a cluster.",
    no_args_is_help=True,
    # Older spellings go on working, and the help shows one word for a place.
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
app.command("crashtest", epilog="Example: tidewire crashtest --data /tmp/new --kills 100")(crashtest)
app.command(epilog="Example: tidewire worker --url postgres://user@host/db --processes 4")(worker)


def main() -> None:
    """Run the command. Exit codes: 0 all is well, 1 it failed or something was found, 2 wrong
    usage, 3 a hub, a server or a store can't be reached.
    """
    for output in (sys.stdout, sys.stderr):
        escape_in(output)
    app()


HUB_URL = "tide://127.0.0.1:7420"

OPTIONS_OF_ITS_OWN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""For commands that read their own options."""


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    """One messaging runtime from a function call to a cluster."""
    if version:
        typer.echo(f"tidewire {tw.__version__}")
        raise typer.Exit


TokenText = Annotated[
    str | None, typer.Option("--token", envvar="TIDEWIRE_TOKEN", help="For hubs that ask for one.", show_default=False)
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", help="PEM file with whom to trust, for hubs with TLS.", show_default="TIDEWIRE_CA, or the system"
    ),
]
Cert = Annotated[
    Path | None,
    typer.Option("--cert", help="PEM file of the own certificate, for hubs that ask for one.", show_default=False),
]
Key = Annotated[Path | None, typer.Option("--key", help="PEM file of its private key.", show_default=False)]


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
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file to check.", show_default=False)] = None,
) -> None:
    """Try a hub, NATS, a data folder or a campaign store, and say whether it works. Without a
    target, look at versions and configuration, and try the engine out. Exit code 1 if there is a
    problem to fix, 3 if the target can't be reached.
    """
    from tidewire.commands.self_check import examine

    if target is not None:
        from tidewire.commands.doctor import doctor
        from tidewire.commands.talk import Hub

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
    from tidewire.commands.talk import Hub

    raise typer.Exit(health(Hub(url, token, json, files=(ca, cert, key)), timeout))


@app.command(
    epilog="Example: tidewire up --listen tide://127.0.0.1:7420 --listen tide+unix:///run/user/1000/tidewire.sock"
)
def up(
    listen: Annotated[
        list[str] | None, typer.Option("--listen", help="Where nodes join; may be given again.", show_default=HUB_URL)
    ] = None,
    http: Annotated[
        list[str] | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Where public services are called over HTTP, such as 127.0.0.1:8080; may be given again.",
            show_default=False,
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            metavar="ORIGIN",
            help="Pages of this origin may call over HTTP, such as https://shop.example, or * for all; may be given again.",
            show_default=False,
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="A name of the HTTP gateway of a hub without tokens, besides localhost; may be given again.",
            show_default=False,
        ),
    ] = None,
    http_files: Annotated[
        Path | None,
        typer.Option(
            "--http-files",
            metavar="DIR",
            help="A folder whose files everybody gets over HTTP, at /files/; they are read once, at the start.",
            show_default=False,
        ),
    ] = None,
    console: Annotated[bool, typer.Option("--console", help="Serve the operator console at /console/.")] = False,
    console_admin: Annotated[bool, typer.Option("--console-admin", help="Without tokens, let it act, too.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Of the hub.", show_default=False)] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A TOML file; its table hub has these options, too.", show_default=False),
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(
            "--token",
            help="Only nodes with it may join, and may do everything: SECRET or USER:SECRET; may be given again. What a token "
            "allows, and its limits, go in tables hub.tokens of the --config file, which also hides it: others can read a "
            "command line.",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen where other machines can reach it, without TLS or a token.")
    ] = False,
    cert: Annotated[
        Path | None,
        typer.Option("--cert", help="PEM file of the certificate, for tide+tls:// and wss://.", show_default=False),
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="PEM file of its private key.", show_default=False)] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", help="PEM file: only nodes with a certificate signed by one in it may join.", show_default=False
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds for calls to end when it stops.", show_default="10")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="A folder with streams, buckets and leases for all that join.", show_default=False),
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(
            "--nats",
            metavar="URL",
            help="Servers of NATS, such as nats://127.0.0.1:4222: those that join, and clients over HTTP, reach the services of the cluster "
            "there, and streams live in JetStream. A URL with a password goes in the --config file: others can read a command line.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of the configuration, such as links.link_heartbeat_ms=1000; may be given again.",
        ),
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
    options = {
        "name": name,
        "listen": tuple(listen) if listen else None,
        "http": tuple(http) if http else None,
        "cors": tuple(cors) if cors else None,
        "hosts": tuple(hosts) if hosts else None,
        "http_files": http_files,
        "console": console or console_admin or None,
        "console_admin": console_admin or None,
        "insecure": insecure or None,
        "cert": cert,
        "key": key,
        "ca": ca,
        "timeout": timeout,
        "data": data,
        "nats": nats,
    }
    raise typer.Exit(up(config, options, token or [], settings or [], json))


@app.command(epilog="Example: tidewire console --data orders-data")
def console(
    url: Annotated[str, typer.Argument(help="Its HTTP address.")] = "http://127.0.0.1:8420",
    data: Annotated[Path | None, typer.Option("--data", help="Start a hub of this folder.", show_default=False)] = None,
) -> None:
    """Open the operator console of a hub, or of a data folder, in the browser."""
    from tidewire.commands.console import console

    raise typer.Exit(console(url, data))


Url = Annotated[str, typer.Option("--url", envvar="TIDEWIRE_URL", help="The hub.")]
Text = Annotated[bool, typer.Option("--text", help="Take it for text, whatever it looks like.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds in which it tries again to join a hub that is away.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the answer.")]
All = Annotated[bool, typer.Option("--all", help="Those of Tidewire itself, too, such as tidewire-streams.")]
Header = Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE; may be given again.")]


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


def _at_a_hub(work: Callable[..., int]) -> Callable[..., None]:
    """Make a command of a function that gets a ``talk.Hub`` first: with the options that say which
    one, and how to join it.
    """

    def command(
        url: Url = HUB_URL,
        token: TokenText = None,
        ca: Ca = None,
        cert: Cert = None,
        key: Key = None,
        wait: Wait = 0.0,
        json: Json = False,
        **own: Any,
    ) -> None:
        from tidewire.commands.talk import Hub

        raise typer.Exit(work(Hub(url, token, json, (ca, cert, key), wait), **own))

    return with_options(command, work, 1)


@app.command(epilog="""Example: tidewire pub orders.created '{"id": 7}'""")
@_at_a_hub
def pub(
    hub: Any,
    subject: Annotated[str, typer.Argument(help="What to publish on.")],
    message: Annotated[str, typer.Argument(help="JSON, or text.")],
    header: Header = None,
    text: Text = False,
) -> int:
    """Publish a message through a hub."""
    from tidewire.commands import talk

    hub.as_text = text
    return talk.pub(hub, subject, message, header or [])


@app.command(epilog="Example: tidewire sub 'orders.>' --count 10")
@_at_a_hub
def sub(
    hub: Any,
    pattern: Annotated[str, typer.Argument(help="Subjects; * stands for one token, > at the end for the rest.")],
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many.", show_default=False)] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="Share with others of this group.", show_default=False)
    ] = None,
) -> int:
    """Print what is published through a hub, until Ctrl-C."""
    from tidewire.commands import talk

    return talk.sub(hub, pattern, count, queue)


@app.command(epilog="""Example: tidewire req pricing.quote '"X"' --timeout 2""")
@_at_a_hub
def req(
    hub: Any,
    subject: Annotated[str, typer.Argument(help="Whom to ask.")],
    message: Annotated[str, typer.Argument(help="JSON, or text.")],
    timeout: Timeout = 30.0,
    header: Header = None,
    text: Text = False,
) -> int:
    """Send a request to a subscriber of a subject, and print the reply."""
    from tidewire.commands import talk

    hub.as_text = text
    return talk.req(hub, subject, message, timeout, header or [])


@app.command(epilog="Example: tidewire call pricing.quote X qty=3")
@_at_a_hub
def call(
    hub: Any,
    method: Annotated[str, typer.Argument(help="SERVICE.METHOD")],
    arguments: Annotated[list[str] | None, typer.Argument(help="JSON or text, by position or as NAME=VALUE.")] = None,
    timeout: Timeout = 30.0,
    text: Text = False,
) -> int:
    """Call a method of a service, and print its result, or the items of its stream as they come."""
    from tidewire.commands import talk

    hub.as_text = text
    return talk.call(hub, method, arguments or [], timeout)


@app.command(epilog="Example: tidewire services --json")
@_at_a_hub
def services(hub: Any, all: All = False) -> int:
    """List the services of a hub."""
    from tidewire.commands import talk

    return talk.services(hub, all)


@app.command(epilog="Example: tidewire nodes --json")
@_at_a_hub
def nodes(hub: Any) -> int:
    """List the nodes that have joined a hub, and the hub itself."""
    from tidewire.commands import talk

    return talk.nodes(hub)


@app.command(epilog="Example: tidewire agents --json")
@_at_a_hub
def agents(hub: Any) -> int:
    """List the agents of the nodes of a hub."""
    from tidewire.commands import talk

    return talk.agents(hub)


@generate.command("ts", epilog="Example: tidewire generate ts --url ws://127.0.0.1:7421 --out src/services.ts")
def generate_ts(
    place: Annotated[str | None, typer.Argument(hidden=True)] = None,
    url: Url = HUB_URL,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write; else it is printed.", show_default=False)
    ] = None,
    no_bigint: Annotated[
        bool, typer.Option("--no-bigint", help="Integers are number alone: for services that stay within 2^53.")
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
    from tidewire.commands.talk import Hub, generate_ts

    raise typer.Exit(generate_ts(Hub(place or url, token, False, files=(ca, cert, key)), out, all, not no_bigint))


@app.command(epilog="Example: tidewire top --node orders --interval 2")
def top(
    node: Annotated[str | None, typer.Option("--node", help="Its name or process id.", show_default=False)] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            help="A hub whose nodes to watch.",
            show_default="TIDEWIRE_URL if it is a hub, else the nodes of this user",
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
    from tidewire.commands.talk import Hub
    from tidewire.top.command import top

    # A folder or a store that the environment names has no nodes.
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
