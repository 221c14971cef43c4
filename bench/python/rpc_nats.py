"""nats-py through a nats-server, which also is the hub of async-nats."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from rpc_roles import Contender, Place, Service, free_port, listening, program, run
from rpc_workloads import Link

# The server's own limits are 1 MB for a payload, and 64 MB that may wait for one connection.
CONFIGURATION = 'host: "127.0.0.1"\nport: {port}\nmax_payload: 8MB\nmax_pending: 256MB\n'
WEBSOCKET = 'websocket {{ host: "127.0.0.1", port: {port}, no_tls: true }}\n'
"""Where callers of JavaScript join; the service joins as always."""
REQUEST_TIMEOUT_S = 50.0


@asynccontextmanager
async def hub(form: str) -> AsyncIterator[Place]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "nats.conf")
        text, url = CONFIGURATION.format(port=port), f"nats://127.0.0.1:{port}"
        if form == "javascript":
            of_callers = free_port()
            text, url = text + WEBSOCKET.format(port=of_callers), f"{url}#ws://127.0.0.1:{of_callers}"
        path.write_text(text, encoding="utf-8")
        server = str(Path(sys.executable).with_name("nats-server"))
        with program(server, "-c", str(path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            await listening(port, process)
            yield Place(url, process.pid)


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    url, _, of_callers = url.partition("#")
    client = await nats.connect(url)

    async def echo(message: Msg) -> None:
        await message.respond(service.echo(message.data))

    async def take(message: Msg) -> None:
        service.take(message.data)

    await client.subscribe("echo", cb=echo)
    await client.subscribe("take", cb=take)
    await client.flush()
    yield of_callers or url
    await client.close()


class Caller:
    """A client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def echo(self, data: bytes) -> bytes:
        return (await self._client.request("echo", data, timeout=REQUEST_TIMEOUT_S)).data

    async def stream(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            await self._client.publish("take", message)
        await self._client.flush()


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    client = await nats.connect(url)
    yield Caller(client)
    await client.close()


if __name__ == "__main__":
    run(Contender(serve, connect, hub))
