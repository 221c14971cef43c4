"""Tidewire itself: nodes joined through a hub that is the command `tidewire up`, or directly, where
the service's node listens.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import tidewire as tw
from rpc_roles import Contender, Place, Service, program, run
from rpc_workloads import Link
from tidewire.services.instances import context

HUB = [sys.executable, "-m", "tidewire", "up", "--log-level", "warning", "--listen", "tide://127.0.0.1:0"]
FOR_JAVASCRIPT = ["--listen", "ws://127.0.0.1:0"]
"""Where callers of JavaScript join; the service joins as always."""
SERVICE_HUB = ([], ["--name", "service"])
STREAM_SUBJECT = "bench.take"


@dataclass
class Record:
    """An argument that is no plain value."""

    data: bytes


@asynccontextmanager
async def hub(form: str) -> AsyncIterator[Place]:
    more = FOR_JAVASCRIPT if form == "javascript" else []
    async with started_hub(1 + bool(more), *more, *SERVICE_HUB[form == "two-hubs"]) as (urls, pid):
        if form != "two-hubs":
            yield Place("#".join(urls), pid)
            return
        # Callers join another hub, which has joined that of the service.
        async with started_hub(1, "--name", "caller", "--join", *urls, "--import", "service:echo=echo") as (here, pid):
            yield Place("#".join(urls + here), pid)


@asynccontextmanager
async def started_hub(count: int, *options: str) -> AsyncIterator[tuple[list[str], int]]:
    """Start a hub, and give its URLs and its process."""
    with program(*HUB, *options, stdout=subprocess.PIPE) as process:
        urls: list[str] = []
        while len(urls) < count:
            line = await asyncio.to_thread(process.stdout.readline)
            found = re.findall(r"\w+://[^\s,]+", line)
            if not found:
                sys.exit(f"role hub: no URL in the first lines of {' '.join(HUB[1:])}: {line!r}")
            urls += found
        yield urls, process.pid


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    class Echo(tw.Service):
        @tw.method
        async def echo(self, data: bytes) -> bytes:
            return service.echo(data)

        @tw.method
        def echo_plain(self, data: bytes) -> bytes:
            return service.echo(data)

        @tw.method
        async def echo_record(self, record: Record) -> bytes:
            return service.echo(record.data)

        @tw.method
        async def echo_items(self, data: bytes) -> AsyncIterator[bytes]:
            yield service.echo(data)

    url, _, of_callers = url.partition("#")
    async with AsyncExitStack() as nodes:
        node, *others = [await nodes.enter_async_context(tw.Node(url or "mem://")) for _ in range(1 + (form == "two"))]
        for one in (node, *others):
            await one.serve(Echo(), name="echo")
        node.subscribe(STREAM_SUBJECT, node.spawn(service.take))
        if form == "direct":
            url = node.listen("tide://127.0.0.1:0").url
        yield of_callers or url


class Caller:
    """A node and its proxy of the service."""

    def __init__(self, node: Any, form: str) -> None:
        self._node = node
        proxy = node.client("echo")

        async def read(data: bytes) -> bytes:
            return b"".join([item async for item in proxy.echo_items(data)])

        shapes: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "named": lambda data: proxy.echo(data=data),
            "timeout": lambda data: proxy.with_(timeout=20.0).echo(data),
            "plain": proxy.echo_plain,
            "record": lambda data: proxy.echo_record(Record(data)),
            "iterator": read,
        }
        self._call: Callable[[bytes], Awaitable[bytes]] = shapes.get(form, proxy.echo)

    async def echo(self, data: bytes) -> bytes:
        return await self._call(data)

    async def stream(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            self._node.publish(STREAM_SUBJECT, message)


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    async with tw.Node(url) as node:
        if form == "two-hubs":
            # The service takes a moment to be known at the other hub.
            async for change in node.watch_services("echo"):
                if change.kind == "joined":
                    break
        if form != "inside":
            yield Caller(node, form)
            return
        # Later calls belong to the call of a handler that waits.
        begun, over = asyncio.get_running_loop().create_future(), asyncio.Event()

        async def hold() -> None:
            begun.set_result(context.running.get())
            await over.wait()

        await node.serve({"hold": hold}, name="holding")
        holding = asyncio.ensure_future(node.client("holding").with_(timeout=3_600.0).hold())
        context.running.set(await begun)
        yield Caller(node, form)
        over.set()
        await holding


if __name__ == "__main__":
    run(Contender(serve, connect, hub))
