"""python-socketio as the service of callers of JavaScript; the hub is one of JavaScript,
bench/javascript/relays.mjs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import socketio
from rpc_roles import Contender, Service, run
from rpc_workloads import Link


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    client = socketio.AsyncClient()

    @client.on("echo")
    async def echo(data: bytes) -> bytes:
        return service.echo(data)

    await client.connect(f"{url}?role=service", transports=["websocket"])
    yield url
    await client.disconnect()


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    raise SystemExit("role caller: the callers of socket.io are those of JavaScript")
    yield


if __name__ == "__main__":
    run(Contender(serve, connect))
