"""gRPC between caller and service, without a hub: replies, streams of one item, and one way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from rpc_roles import Contender, Service, run
from rpc_workloads import Link

SERVICE = "bench.Echo"


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    async def echo(data: bytes, _: Any) -> bytes:
        return service.echo(data)

    async def items(data: bytes, _: Any) -> AsyncIterator[bytes]:
        yield service.echo(data)

    async def take(messages: AsyncIterator[bytes], _: Any) -> bytes:
        async for message in messages:
            service.take(message)
        return b""

    methods = {
        "echo": grpc.unary_unary_rpc_method_handler(echo),
        "items": grpc.unary_stream_rpc_method_handler(items),
        "take": grpc.stream_unary_rpc_method_handler(take),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


class Caller:
    def __init__(self, channel: grpc.aio.Channel, form: str) -> None:
        self._echo = channel.unary_unary(f"/{SERVICE}/echo")
        self._items = channel.unary_stream(f"/{SERVICE}/items")
        self._take = channel.stream_unary(f"/{SERVICE}/take")
        self.echo = self._one_item if form == "iterator" else self._reply

    async def _reply(self, data: bytes) -> bytes:
        reply: bytes = await self._echo(data)
        return reply

    async def _one_item(self, data: bytes) -> bytes:
        [item] = [item async for item in self._items(data)]
        return item  # type: ignore[no-any-return]

    async def stream(self, messages: Sequence[bytes]) -> None:
        await self._take(iter(messages))


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    async with grpc.aio.insecure_channel(url) as channel:
        yield Caller(channel, form)


if __name__ == "__main__":
    run(Contender(serve, connect))
