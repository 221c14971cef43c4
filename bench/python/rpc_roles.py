"""The command line that every contender has: a hub, an echo service and a caller, each a process of
its own.

python rpc_nats.py hub python rpc_nats.py service --url URL python rpc_nats.py caller --url URL
--workload small-seq --count 2000 --watch service=PID --watch hub=PID

A hub and a service print one line of JSON, ``{"url": "...", "pid": 1}``, once others can come, and
end when their standard input ends. A service takes the hub's URL and gives the one that callers
need. A caller prints one line with its figures for each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass

from rpc_usage import Usage
from rpc_workloads import WORKLOADS, Link, now_ns

WARM_UP_SHARE = 10
CONNECT_ATTEMPTS, CONNECT_PAUSE_S = 600, 0.05


class Service:
    """The echo service, the same for all contenders."""

    def __init__(self) -> None:
        self._count, self._at_ns = 0, 0

    def echo(self, data: bytes) -> bytes:
        """The payload itself; for a single byte, how much of a stream has come."""
        return data if len(data) != 1 else json.dumps([self._count, self._at_ns]).encode()

    def take(self, data: bytes) -> None:
        """A message of a stream."""
        self._count += 1
        self._at_ns = now_ns()


@dataclass(frozen=True)
class Place:
    """Where a role can be found, and the process that does its work."""

    url: str
    pid: int = 0


Say = Callable[[dict[str, object]], None]
Hub = Callable[[str], AbstractAsyncContextManager[Place]]
Serve = Callable[[str, str, Service], AbstractAsyncContextManager[str]]
Connect = Callable[[str, str], AbstractAsyncContextManager[Link]]


@dataclass(frozen=True)
class Contender:
    """How a peer does each of the roles; every function gets the form, and all but the hub a
    URL.
    """

    serve: Serve
    connect: Connect
    hub: Hub | None = None


def run(contender: Contender) -> None:
    """Takes one role, as the command line says."""
    options = arguments().parse_args()
    with own_lines() as say:
        asyncio.run(ROLES[options.role](contender, options, say))


@contextmanager
def own_lines() -> Iterator[Say]:
    """Keeps standard output for lines of JSON: what a peer prints there goes to standard error."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as lines:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        yield lambda what: print(json.dumps(what), file=lines, flush=True)


def arguments() -> argparse.ArgumentParser:
    """The same for everybody."""
    parser = argparse.ArgumentParser(description="Takes one role of a request between processes.")
    parser.add_argument("role", choices=sorted(ROLES))
    parser.add_argument("--form", default="", help="a variant of the contender")
    parser.add_argument("--url", default="", help="of the hub, or for a caller of the service")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="small-seq")
    parser.add_argument("--count", type=int, default=100, help="requests or messages of a round")
    parser.add_argument("--rate", type=float, default=1_000.0, help="requests per second of the open loop")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--watch", type=named_pid, action="append", default=[], metavar="NAME=PID")
    return parser


async def hub_role(contender: Contender, options: argparse.Namespace, say: Say) -> None:
    """Runs a hub until nobody needs it."""
    if contender.hub is None:
        sys.exit(f"role hub: {sys.argv[0]} has none")
    async with contender.hub(options.form) as place:
        await announce(place, say)


async def service_role(contender: Contender, options: argparse.Namespace, say: Say) -> None:
    """Runs the echo service until nobody needs it."""
    async with contender.serve(options.url, options.form, Service()) as url:
        await announce(Place(url), say)


async def caller_role(contender: Contender, options: argparse.Namespace, say: Say) -> None:
    """Runs a workload: once in small, untimed, then every round."""
    workload = WORKLOADS[options.workload]
    small = argparse.Namespace(**{**vars(options), "count": max(1, options.count // WARM_UP_SHARE)})
    usage = Usage({"caller": os.getpid(), **dict(options.watch)})
    async with contender.connect(options.url, options.form) as link:
        await workload(link, small, usage)
        for _ in range(options.rounds):
            figures = await workload(link, options, usage)
            say({"workload": options.workload, "figures": {**figures, **usage.figures(figures["count"])}})


async def announce(place: Place, say: Say) -> None:
    """Says where this process is, and waits for the end of standard input."""
    say({"url": place.url, "pid": place.pid or os.getpid()})
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


@contextmanager
def program(*command: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A server that is not Python's: ended with this process."""
    process = subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=10)


async def listening(port: int, process: subprocess.Popen[str]) -> None:
    """Waits until a server that says nothing can be reached."""
    for _ in range(CONNECT_ATTEMPTS):
        if process.poll() is not None:
            sys.exit(f"role hub: {process.args[0]} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            await asyncio.sleep(CONNECT_PAUSE_S)
        else:
            return
    sys.exit(f"role hub: nothing listens on port {port} after {CONNECT_ATTEMPTS * CONNECT_PAUSE_S:.0f} s")


def free_port() -> int:
    """A port that nobody has at the moment, for servers that can't choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def named_pid(text: str) -> tuple[str, int]:
    """hub=123."""
    name, _, pid = text.partition("=")
    return name, int(pid)


ROLES = {"hub": hub_role, "service": service_role, "caller": caller_role}
