"""hypha-rpc through its server. Forms: compressed (as it comes), plain (compression of its
WebSockets turned off).

It has no message one way: a stream is requests whose replies nobody waits for until the last has
gone.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hypha_rpc import connect_to_server
from hypha_rpc.websocket_client import WebsocketRPCConnection
from rpc_roles import Contender, Place, Service, free_port, listening, program, run
from rpc_workloads import Link

METHOD_TIMEOUT_S = 50
# As it comes, the server cuts off whoever sends more than 200 messages a second for long.
UNLIMITED = {"HYPHA_WS_MSG_RATE_LIMIT": "1000000000", "HYPHA_WS_MSG_BURST_LIMIT": "1000000000"}


@asynccontextmanager
async def hub(form: str) -> AsyncIterator[Place]:
    port = free_port()
    # A server leaves a database where it starts.
    with tempfile.TemporaryDirectory() as folder:
        server = [str(Path(sys.executable).with_name("hypha-server")), "--host", "127.0.0.1", "--port", str(port)]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with program(*server, cwd=folder, env={**os.environ, **UNLIMITED}, **silent) as process:
            await listening(port, process)
            yield Place(f"http://127.0.0.1:{port}", process.pid)


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    async with joined(url, form) as server:
        methods = {"echo": service.echo, "take": service.take}
        info = await server.register_service({"id": "bench", "config": {"visibility": "public"}, **methods})
        yield f"{url}#{info['id']}"


class Caller:
    """A service's proxy."""

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy

    async def echo(self, data: bytes) -> bytes:
        reply: bytes = await self._proxy.echo(data)
        return reply

    async def stream(self, messages: Sequence[bytes]) -> None:
        await asyncio.gather(*(self._proxy.take(message) for message in messages))


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    place, _, service = url.partition("#")
    async with joined(place, form) as server:
        yield Caller(await server.get_service(service))


@asynccontextmanager
async def joined(url: str, form: str) -> AsyncIterator[Any]:
    """A connection to the server, with or without compression, which it has no option for."""
    if form == "plain":
        usual = WebsocketRPCConnection._ws_connect_kwargs
        WebsocketRPCConnection._ws_connect_kwargs = lambda self: {**usual(self), "compression": None}
    server = await connect_to_server({"server_url": url, "method_timeout": METHOD_TIMEOUT_S})
    yield server
    await server.disconnect()


if __name__ == "__main__":
    run(Contender(serve, connect, hub))
