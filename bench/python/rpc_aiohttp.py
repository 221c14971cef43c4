"""WebSockets of aiohttp between caller and service, without a hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, web
from rpc_frames import Requests, answer
from rpc_roles import Contender, Service, run
from rpc_workloads import Link


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    async def answer_all(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False, max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            reply = answer(service, message.data)
            if reply is not None:
                await socket.send_bytes(reply)
        return socket

    application = web.Application()
    application.router.add_get("/", answer_all)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    async with ClientSession() as session, session.ws_connect(url, compress=0, max_msg_size=0) as socket:
        requests = Requests(socket.send_bytes)
        receiving = asyncio.create_task(receive(socket, requests))
        yield requests
        receiving.cancel()


async def receive(socket: ClientWebSocketResponse, requests: Requests) -> None:
    """Hands replies to those who wait for them."""
    async for message in socket:
        assert message.type is WSMsgType.BINARY, message
        requests.arrived(message.data)


if __name__ == "__main__":
    run(Contender(serve, connect))
