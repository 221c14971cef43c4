"""Tidewire itself: nodes joined through a hub that is the command `tidewire up`, or directly, where the service's node listens."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import tidewire as tw
from rpc_roles import Contender, Place, Service, program, run
from rpc_workloads import Link

HUB = [sys.executable, "-m", "tidewire", "up", "--listen", "tide://127.0.0.1:0"]
FOR_JAVASCRIPT = ["--listen", "ws://127.0.0.1:0"]
"""Where callers of JavaScript join; the service joins as always."""
STREAM_SUBJECT = "bench.take"


@asynccontextmanager
async def hub(form: str) -> AsyncIterator[Place]:
    more = FOR_JAVASCRIPT if form == "javascript" else []
    with program(*HUB, *more, stdout=subprocess.PIPE) as process:
        urls: list[str] = []
        while len(urls) < 1 + bool(more):
            line = await asyncio.to_thread(process.stdout.readline)
            found = re.findall(r"\w+://[^\s,]+", line)
            if not found:
                sys.exit(f"role hub: no URL in the first lines of {' '.join(HUB[1:])}: {line!r}")
            urls += found
        yield Place("#".join(urls), process.pid)


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    class Echo(tw.Service):
        @tw.method
        async def echo(self, data: bytes) -> bytes:
            return service.echo(data)

    url, _, of_callers = url.partition("#")
    async with tw.Node(url or "mem://") as node:
        await node.serve(Echo(), name="echo")
        node.subscribe(STREAM_SUBJECT, node.spawn(service.take))
        if form == "direct":
            url = node.listen("tide://127.0.0.1:0").url
        yield of_callers or url


class Caller:
    """A node and its proxy of the service."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self._proxy = node.client("echo")

    async def echo(self, data: bytes) -> bytes:
        reply: bytes = await self._proxy.echo(data)
        return reply

    async def stream(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            self._node.publish(STREAM_SUBJECT, message)


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    async with tw.Node(url) as node:
        yield Caller(node)


if __name__ == "__main__":
    run(Contender(serve, connect, hub))
