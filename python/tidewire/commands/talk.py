"""``tidewire pub``, ``sub``, ``req``, ``call``, ``services``, ``nodes`` and ``agents``. Each of
them joins a hub with a node of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import tidewire as tw
from tidewire._urls import is_link, is_nats, is_secured
from tidewire.commands.output import as_json, complain, fail, option, print_table, stop_output
from tidewire.commands.place import Json, with_options
from tidewire.errors import InvalidArgument
from tidewire.services.contract.names import method_problem, short

HUB_URL = "tide://127.0.0.1:7420"
TokenText = Annotated[str | None, option("--token", "For hubs that ask for one.", envvar="TIDEWIRE_TOKEN")]
_CA = option("--ca", "PEM file with whom to trust, for hubs with TLS.", shown="TIDEWIRE_CA, or the system")
Ca = Annotated[Path | None, _CA]
Cert = Annotated[Path | None, option("--cert", "PEM file of the own certificate, for hubs that ask for one.")]
Key = Annotated[Path | None, option("--key", "PEM file of its private key.")]
Url = Annotated[str, typer.Option("--url", envvar="TIDEWIRE_URL", help="The hub.")]
Text = Annotated[bool, typer.Option("--text", help="Send it as text, not as JSON.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds in which it tries again to join a hub that is away.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the answer.")]
All = Annotated[bool, typer.Option("--all", help="Those of Tidewire itself, too, such as tidewire-streams.")]
Header = Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE; may be given again.")]


class Hub:
    """The hub of a command, and its form of output.

    Args:
        url: Its address.
        token: A token, for hubs that require one.
        as_json: True to print data and errors as JSON.
        files: PEM files: the trusted certificates (by default TIDEWIRE_CA), the own certificate,
            and its key.
        wait: Seconds for which joining an unreachable hub is retried.

    Attributes:
        as_text: True to treat messages and arguments as text, even if they look like JSON.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        as_json: bool,
        files: tuple[Path | None, Path | None, Path | None] = (None, None, None),
        wait: float = 0.0,
    ) -> None:
        self._files = files
        self._wait = wait
        self.url = url
        self.token = token
        self.as_json = as_json
        self.as_text = False

    def run(self, work: Callable[[tw.Node], Awaitable[int]]) -> int:
        """Join, run the work, and return its exit code: that of ``fail`` after an error, 130 after
        Ctrl-C.
        """

        async def joined() -> int:
            async with self.joined() as node:
                return await work(node)

        return self.finish(joined)

    def finish(self, work: Callable[[], Coroutine[Any, Any, int | None]]) -> int:
        """Run work that joins by itself; see ``run``."""
        try:
            return asyncio.run(work()) or 0
        except tw.TidewireError as error:
            return fail(error, self.as_json)
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            # An exception of a handler is a reply. Any other would be a bug of this command.
            if not isinstance(error.__cause__, tw.RemoteError):
                if isinstance(error, BrokenPipeError):
                    return stop_output()
                raise
            text = str(error) if self.as_json else f"{error} (raised by the handler)"
            self.complain(tw.RemoteError.code, text, kind=type(error).__name__)
            return 1

    def say(self, value: Any, text: str | None = None) -> None:
        """Print a value as JSON, or its text if there is one."""
        if self.as_json or text is None:
            text = as_json(value)
        print(text, flush=True)

    def complain(self, code: str, text: str, retryable: bool = False, kind: str | None = None) -> None:
        """Print an error to the standard error: a line, or a JSON object with ``error``."""
        complain(text, code=code, retryable=retryable, kind=kind, json_wanted=self.as_json)

    def value_of(self, field: str, text: str) -> Any:
        """Return the value of a command line argument: parsed as JSON if possible, else its text.

        Raises:
            InvalidArgument: if it begins like a JSON object or list, and is invalid.
        """
        return text if self.as_text else json_or_text(field, text, "send it as text with --text")

    @asynccontextmanager
    async def joined(self, **options: Any) -> AsyncIterator[tw.Node]:
        """Join with a new node, which may have further options."""
        if not is_link(self.url) and not is_nats(self.url):
            raise InvalidArgument(
                f"url: {self.url!r} is not allowed here: give that of a hub, such as tide://127.0.0.1:7420, or of NATS"
            )
        own_ca, cert, key = self._files
        ca = own_ca or (os.environ.get("TIDEWIRE_CA") if is_secured(self.url) else None)
        tls = tw.Tls(ca, cert, key) if ca or cert or key else None
        name = f"tidewire-{os.getpid()}-{os.urandom(4).hex()}"
        async with tw.Node(self.url, name, token=self.token, tls=tls, join_timeout=self._wait, **options) as node:
            yield node


def json_or_text(field: str, text: str, fix: str = "write it as a string of JSON") -> Any:
    """Return the value of an argument; see ``Hub.value_of``."""
    try:
        return json.loads(text)
    except ValueError as error:
        if text.lstrip()[:1] not in ("{", "["):
            return text
        raise InvalidArgument(
            f"{field}: {short(text)} begins like JSON and is none ({error}): correct it, or {fix}"
        ) from None


def with_hub(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a command of a coroutine function with a ``Hub``, and add the options of the hub and its
    connection.
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
        hub = Hub(url, token, json, (ca, cert, key), wait)
        raise typer.Exit(hub.finish(lambda: work(hub, **own)))

    return with_options(command, work, 1)


@with_hub
async def pub(
    hub: Hub,
    subject: Annotated[str, typer.Argument(help="The subject.")],
    message: Annotated[str, typer.Argument(help="JSON, or text.")],
    header: Header = None,
    text: Text = False,
) -> None:
    """Publish a message through a hub."""
    hub.as_text = text
    async with hub.joined() as node:
        node.publish(subject, hub.value_of("MESSAGE", message), headers=_headers(header or []))
        hub.say({"published": subject}, f"published on {subject}")


@with_hub
async def sub(
    hub: Hub,
    pattern: Annotated[str, typer.Argument(help="Subjects; * matches one token, > at the end the rest.")],
    count: Annotated[int | None, option("--count", "End after so many.", min=1)] = None,
    queue: Annotated[str | None, option("--queue", "Share with others of this group.")] = None,
) -> None:
    """Print what is published through a hub, until Ctrl-C."""
    async with hub.joined() as node, node.subscription(pattern, queue=queue) as messages:
        print(f"sub: {pattern} at {hub.url}", file=sys.stderr, flush=True)
        async for one in messages:
            if one.subject.startswith("$") and not pattern.startswith("$"):
                # Internal messages between a hub and its nodes.
                continue
            hub.say(
                {"subject": one.subject, "message": one.message, "headers": dict(one.headers)},
                f"{one.subject}  {_text_of(one.message)}",
            )
            count = None if count is None else count - 1
            if count == 0:
                break


@with_hub
async def req(
    hub: Hub,
    subject: Annotated[str, typer.Argument(help="Whom to ask.")],
    message: Annotated[str, typer.Argument(help="JSON, or text.")],
    timeout: Timeout = 30.0,
    header: Header = None,
    text: Text = False,
) -> None:
    """Send a request to a subscriber of a subject, and print the reply."""
    hub.as_text = text
    async with hub.joined() as node:
        reply = await node.request(
            subject, hub.value_of("MESSAGE", message), timeout=timeout, headers=_headers(header or [])
        )
        hub.say(reply, _text_of(reply))


@with_hub
async def call(
    hub: Hub,
    method: Annotated[str, typer.Argument(help="SERVICE.METHOD")],
    arguments: Annotated[list[str] | None, typer.Argument(help="JSON or text, by position or as NAME=VALUE.")] = None,
    timeout: Timeout = 30.0,
    text: Text = False,
) -> None:
    """Call a method of a service, and print its result, or the items of its stream as they come."""
    hub.as_text = text
    service, dot, name = method.rpartition(".")
    hint = f"METHOD: {method!r} is not allowed: write SERVICE.METHOD, such as pricing.quote"
    if problem := method_problem("METHOD", name) if dot else hint:
        raise InvalidArgument(problem)
    async with hub.joined() as node:
        args, kwargs = parse_arguments(hub.value_of, arguments or [])
        reply = getattr(node.client(service).with_(timeout=timeout), name)(*args, **kwargs)
        info = next((one for one in await node.services() if one.name == service), None)
        if info is not None and any(one.name == name and one.stream for one in info.methods):
            async for item in reply:
                hub.say(item, _text_of(item))
        else:
            result = await reply
            hub.say(result, _text_of(result))


@with_hub
async def services(hub: Hub, all: All = False) -> None:
    """List the services of a hub."""
    async with hub.joined() as node:
        known = await _services(node, all)
        if hub.as_json:
            hub.say([one.to_dict() for one in known])
            return
        if not known:
            print(f"no services at {hub.url}")
            return
        rows = []
        for one in known:
            names = [f"{method.name}{' (stream)' if method.stream else ''}" for method in one.methods]
            methods = ", ".join([*names, *(f"{command.name} (command)" for command in one.commands)])
            versions = ", ".join(sorted({detail.version for detail in one.details if detail.version})) or "-"
            rows.append((one.name, versions, str(len(one.instances)), methods, one.description))
        print_table(("service", "version", ">instances", "methods", "what it does"), rows)


@with_hub
async def nodes(hub: Hub) -> None:
    """List the nodes that have joined a hub, and the hub itself."""
    async with hub.joined() as node:
        known = [one for one in await node.nodes() if one.name != node.name]
        if hub.as_json:
            hub.say([one.to_dict() for one in known])
            return
        rows = [
            (one.name, one.user, str(one.subscriptions), str(one.open_calls), f"{one.joined_s:,.0f} s") for one in known
        ]
        print_table(("node", "user", ">subscriptions", ">open calls", ">joined for"), rows)


@with_hub
async def agents(hub: Hub) -> None:
    """List the agents of the nodes of a hub."""
    async with hub.joined() as node:
        known = sorted(node.agents, key=lambda agent: agent.id)
        agent_list = [
            {"id": one.id, "type": one.type, "capabilities": sorted(one.capabilities), "node": one.statistics()["node"]}
            for one in known
        ]
        if hub.as_json:
            hub.say(agent_list)
        elif not agent_list:
            print(f"there are no agents at {hub.url}")
        else:
            rows = [(one["id"], one["type"], ", ".join(one["capabilities"]), one["node"]) for one in agent_list]
            print_table(("agent", "type", "capabilities", "node"), rows)


async def _services(node: tw.Node, with_internals: bool) -> list[tw.ServiceInfo]:
    """Return the services of users, and with ``with_internals`` those of Tidewire itself."""
    from tidewire.streams import command_info, home

    internals = (home.SERVICE, command_info.SERVICE)
    known = await node.services()
    return [one for one in known if with_internals or not (one.name.startswith("$") or one.name in internals)]


def generate_ts(hub: Hub, out: Path | None, with_internals: bool, bigint: bool) -> int:
    """Write TypeScript interfaces of services, to a file or to the standard output."""
    from tidewire.commands.typescript import typescript

    async def work(node: tw.Node) -> int:
        text = typescript(await _services(node, with_internals), bigint)
        if out is None:
            sys.stdout.write(text)
            return 0
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(
                f"--out: {str(out)!r} is not allowed: {error.strerror}: give a file that can be written"
            ) from None
        return 0

    return hub.run(work)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def parse_arguments(value_of: Callable[[str, str], Any], texts: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the named arguments."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            kwargs[name] = value_of(name, value)
        elif kwargs:
            raise InvalidArgument(f"ARGUMENTS: {text!r} comes after one with a name: put those with names last")
        else:
            args.append(value_of("ARGUMENTS", text))
    return args, kwargs


def _headers(texts: Sequence[str]) -> dict[str, str] | None:
    headers = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgument(f"--header: {text!r} is not allowed: write NAME=VALUE")
        headers[name] = value
    return headers or None
