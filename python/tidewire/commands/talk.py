"""``tidewire pub``, ``sub``, ``req``, ``call``, ``services``, ``nodes`` and ``agents``: a node that
joins a hub for one thing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import tidewire as tw
from tidewire._urls import is_link, is_nats, is_secured
from tidewire.commands.output import as_json, complain, fail
from tidewire.errors import InvalidArgument
from tidewire.services.contract.names import method_problem, short


class Hub:
    """Which hub a command joins, and how it prints.

    Args:
        url: Its address.
        token: For hubs that ask for one.
        as_json: Print data instead of text, errors too.
        files: PEM files: whom to trust (TIDEWIRE_CA where the command says nothing), the own
            certificate, and its key.
        wait: Seconds in which it tries again to join a hub that is away.

    Attributes:
        as_text: True if messages and arguments are text, whatever their form.
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
        """Join, do something, and return its exit code: that of ``fail`` after an error, 130
        after Ctrl-C.
        """

        async def joined() -> int:
            async with self.joined() as node:
                return await work(node)

        return self.finish(joined)

    def finish(self, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """As ``run``, for work that joins by itself."""
        try:
            return asyncio.run(work())
        except tw.TidewireError as error:
            return fail(error, self.as_json)
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            # An exception of a handler is an answer; anything else would be a fault of this
            # command.
            if not isinstance(error.__cause__, tw.RemoteError):
                if isinstance(error, BrokenPipeError):
                    return _unread()
                raise
            text = str(error) if self.as_json else f"{error} (raised by the handler)"
            self.complain(tw.RemoteError.code, text, kind=type(error).__name__)
            return 1

    def say(self, value: Any, text: str | None = None) -> None:
        """Print a value: as JSON, or as text where that reads better."""
        if self.as_json or text is None:
            text = as_json(value)
        print(text, flush=True)

    def complain(self, code: str, text: str, retryable: bool = False, kind: str | None = None) -> None:
        """Print an error to the standard error: a line, or an object with ``error``."""
        complain(text, code=code, retryable=retryable, kind=kind, json_wanted=self.as_json)

    def value_of(self, field: str, text: str) -> Any:
        """Return what an argument of a command line stands for: JSON if it is that, else the text
        itself.

        Raises:
            InvalidArgument: if it begins like an object or a list of JSON, and is none.
        """
        return text if self.as_text else json_or_text(field, text, "send it as text with --text")

    @asynccontextmanager
    async def joined(self, **options: Any) -> AsyncIterator[tw.Node]:
        """Join with a node of its own, which may have further options."""
        if not is_link(self.url) and not is_nats(self.url):
            raise InvalidArgument(
                f"url: {self.url!r} is not allowed here: give that of a hub, such as tide://127.0.0.1:7420, or of NATS"
            )
        given, cert, key = self._files
        ca = given or (os.environ.get("TIDEWIRE_CA") if is_secured(self.url) else None)
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


def pub(hub: Hub, subject: str, message: str, headers: Sequence[str]) -> int:
    """Publish one message."""

    async def work(node: tw.Node) -> int:
        node.publish(subject, hub.value_of("MESSAGE", message), headers=_headers(headers))
        hub.say({"published": subject}, f"published on {subject}")
        return 0

    return hub.run(work)


def sub(hub: Hub, pattern: str, count: int | None, queue: str | None) -> int:
    """Print what is published, until so many messages came."""

    async def work(node: tw.Node) -> int:
        left = count
        async with node.subscription(pattern, queue=queue) as messages:
            print(f"sub: {pattern} at {hub.url}", file=sys.stderr, flush=True)
            async for one in messages:
                if one.subject.startswith("$") and not pattern.startswith("$"):
                    # Messages of a hub to its nodes are not meant for people.
                    continue
                hub.say(
                    {"subject": one.subject, "message": one.message, "headers": dict(one.headers)},
                    f"{one.subject}  {_shown(one.message)}",
                )
                left = None if left is None else left - 1
                if left == 0:
                    break
        return 0

    return hub.run(work)


def req(hub: Hub, subject: str, message: str, timeout: float, headers: Sequence[str]) -> int:
    """Send a request to a subscriber of a subject, and print the reply."""

    async def work(node: tw.Node) -> int:
        reply = await node.request(
            subject, hub.value_of("MESSAGE", message), timeout=timeout, headers=_headers(headers)
        )
        hub.say(reply, _shown(reply))
        return 0

    return hub.run(work)


def call(hub: Hub, method: str, arguments: Sequence[str], timeout: float) -> int:
    """Call a method of a service, and print its result, or the items of its stream."""
    service, dot, name = method.rpartition(".")
    hint = f"METHOD: {method!r} is not allowed: write SERVICE.METHOD, such as pricing.quote"
    problem = method_problem("METHOD", name) if dot else hint
    if problem is not None:
        return fail(InvalidArgument(problem), hub.as_json)

    async def work(node: tw.Node) -> int:
        args, kwargs = parse_arguments(hub.value_of, arguments)
        found = getattr(node.client(service).with_(timeout=timeout), name)(*args, **kwargs)
        info = next((one for one in await node.services() if one.name == service), None)
        streams = info is not None and any(one.name == name and one.stream for one in info.methods)
        if streams:
            async for item in found:
                hub.say(item, _shown(item))
        else:
            result = await found
            hub.say(result, _shown(result))
        return 0

    return hub.run(work)


def services(hub: Hub, with_internals: bool) -> int:
    """Print the services of a hub."""

    async def work(node: tw.Node) -> int:
        known = await _services(node, with_internals)
        if hub.as_json:
            hub.say([one.to_dict() for one in known])
            return 0
        if not known:
            print(f"nobody serves anything at {hub.url}")
            return 0
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("service", "version", "instances", "methods", "what it does"):
            table.add_column(title, justify="right" if title == "instances" else "left", overflow="fold")
        for one in known:
            names = [f"{method.name}{' (stream)' if method.stream else ''}" for method in one.methods]
            methods = ", ".join([*names, *(f"{command.name} (command)" for command in one.commands)])
            versions = ", ".join(sorted({detail.version for detail in one.details if detail.version})) or "-"
            table.add_row(one.name, versions, str(len(one.instances)), methods, one.description)
        Console(highlight=False).print(table)
        return 0

    return hub.run(work)


async def _services(node: tw.Node, with_internals: bool) -> list[tw.ServiceInfo]:
    """Return the services of users, and those of Tidewire itself if they are wanted."""
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


def nodes(hub: Hub) -> int:
    """Print the nodes of a hub."""

    async def work(node: tw.Node) -> int:
        known = [one for one in await node.nodes() if one.name != node.name]
        if hub.as_json:
            hub.say([one.to_dict() for one in known])
            return 0
        rows = [
            (one.name, one.user, str(one.subscriptions), str(one.open_calls), f"{one.joined_s:,.0f} s") for one in known
        ]
        _print_table(("node", "user", "subscriptions", "open calls", "joined for"), rows, left=2)
        return 0

    return hub.run(work)


def agents(hub: Hub) -> int:
    """Print the agents of the nodes of a hub."""

    async def work(node: tw.Node) -> int:
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
            _print_table(("agent", "type", "capabilities", "node"), rows, left=4)
        return 0

    return hub.run(work)


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> None:
    """Print a table, the first columns to the left and the others, numbers, to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, title in enumerate(titles):
        table.add_column(title, justify="left" if at < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def _unread() -> int:
    """The reader of the output, such as ``head``, has closed it: write nothing more, not even at
    the end.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def parse_arguments(value_of: Callable[[str, str], Any], texts: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments by position, and those by name."""
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
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgument(f"--header: {text!r} is not allowed: write NAME=VALUE")
        found[name] = value
    return found or None
