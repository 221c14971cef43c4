"""WebSockets of the package websockets, through a hub that passes frames on. Compression is off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rpc_frames import Requests, answer
from rpc_roles import Contender, Place, Service, run
from rpc_workloads import Link
from websockets.asyncio.client import connect as open_socket
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import Server
from websockets.asyncio.server import serve as listen

OPTIONS = {"compression": None, "max_size": None}


@asynccontextmanager
async def hub(form: str) -> AsyncIterator[Place]:
    """One service, one caller: what one sends goes to the other."""
    joined: dict[str, asyncio.Future[Connection]] = {}

    async def pass_on(socket: Connection) -> None:
        own, other = ("service", "caller") if socket.request.path == "/service" else ("caller", "service")
        place(own).set_result(socket)
        to = await place(other)
        async for frame in socket:
            await to.send(frame)

    def place(role: str) -> asyncio.Future[Connection]:
        return joined.setdefault(role, asyncio.get_running_loop().create_future())

    async with listen(pass_on, "127.0.0.1", 0, **OPTIONS) as server:
        yield Place(address(server))


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    async def answer_all(socket: Connection) -> None:
        async for frame in socket:
            reply = answer(service, frame)
            if reply is not None:
                await socket.send(reply)

    async with open_socket(f"{url}/service", **OPTIONS) as socket:
        answering = asyncio.create_task(answer_all(socket))
        yield url
        answering.cancel()


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    async with open_socket(f"{url}/caller", **OPTIONS) as socket:
        requests = Requests(socket.send)
        receiving = asyncio.create_task(receive(socket, requests))
        yield requests
        receiving.cancel()


async def receive(socket: Connection, requests: Requests) -> None:
    """Hands replies to those who wait for them."""
    async for frame in socket:
        requests.arrived(frame)


def address(server: Server) -> str:
    """Where it listens."""
    return f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


if __name__ == "__main__":
    run(Contender(serve, connect, hub))
