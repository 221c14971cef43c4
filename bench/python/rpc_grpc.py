"""gRPC of the package grpcio, its asyncio side, without a hub. Payloads travel as they are, without
a protobuf around them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
from rpc_roles import Contender, Service, run
from rpc_workloads import Link

OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A server cancels requests by chance when more than 1,000 of them wait for it.
    ("grpc.server.max_pending_requests", 1_000_000),
    ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
]


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    async def echo(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return service.echo(data)

    async def take(messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> bytes:
        async for message in messages:
            service.take(message)
        return b""

    server = grpc.aio.server(options=OPTIONS)
    methods = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Take": grpc.stream_unary_rpc_method_handler(take),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0.1)


class Caller:
    """A channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._echo = channel.unary_unary("/bench.Echo/Echo")
        self._take = channel.stream_unary("/bench.Echo/Take")

    async def echo(self, data: bytes) -> bytes:
        return await self._echo(data)

    async def stream(self, messages: Sequence[bytes]) -> None:
        call = self._take()
        for message in messages:
            await call.write(message)
        await call.done_writing()
        await call


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    async with grpc.aio.insecure_channel(url, options=OPTIONS) as channel:
        yield Caller(channel)


if __name__ == "__main__":
    run(Contender(serve, connect))
